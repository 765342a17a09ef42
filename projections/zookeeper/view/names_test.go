package view

import (
	"testing"

	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/internal/wire/znodedata"
)

// The wanted bytes are those of the original's agents.
func TestLayoutPayloads(t *testing.T) {
	full := &container.Container{
		Id: "pod-1", GrpcAddress: "10.0.0.1:4003", HttpAddress: "10.0.0.1:4004", ArchonAddress: "10.0.0.1:4001", AgentAddress: "10.0.0.1:4002", Idc: "lq",
		LayoutPath: "/b/layouts/l1", LayoutFilters: []string{"entry; True", `ps_(?P<i>\d+); i % 2 == 0`},
	}
	for name, tc := range map[string]struct {
		got  []byte
		want string
	}{
		"deploy config":       {DeployConfigOf(&layout.DeployConfig{ModelBasePath: "/d/m1/exported_models/ps_0", VersionPolicy: "latest_once"}).Bytes(), `{"model_base_path": "/d/m1/exported_models/ps_0", "version_policy": "latest_once"}`},
		"nothing configured":  {znodedata.SavedModelDeployConfig{}.Bytes(), `{"model_base_path": null, "version_policy": null}`},
		"service info":        {ServiceInfoOf(full).Bytes(), `{"grpc": "10.0.0.1:4003", "http": "10.0.0.1:4004", "archon": "10.0.0.1:4001", "agent": "10.0.0.1:4002", "idc": "lq", "debug_info": "{\"layout_path\": \"/b/layouts/l1\", \"layout_filters\": [\"entry; True\", \"ps_(?P<i>\\\\d+); i % 2 == 0\"]}"}`},
		"no layout followed":  {ServiceInfoOf(&container.Container{}).Bytes(), `{"grpc": null, "http": null, "archon": null, "agent": null, "idc": null, "debug_info": null}`},
		"a layout, no filter": {[]byte(znodedata.DebugInfo("/l", nil)), `{"layout_path": "/l", "layout_filters": []}`},
		"nothing is set":      {[]byte(ContainerNode(&container.Container{Id: "10.0.0.1"})), "unknown;None;None:10.0.0.1"},
		"all is set":          {[]byte(ContainerNode(&container.Container{Id: "pod-1", Psm: "data.svc", Idc: "lq", Cluster: "default"})), "data.svc;lq;default:pod-1"},
		"an IPv6 id":          {[]byte(ContainerNode(&container.Container{Id: "fd00::1"})), "unknown;None;None:fd00%3A%3A1"},
	} {
		if string(tc.got) != tc.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, tc.got, tc.want)
		}
	}
}
