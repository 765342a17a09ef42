package view

import (
	"strings"

	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/layout"
)

// SavedModelDeployConfig is the payload of /{bzid}/saved_models/{model}/{sub_graph}.
type SavedModelDeployConfig struct{ ModelBasePath, VersionPolicy string }

// DeployConfigOf is the payload that a declaration's config makes.
func DeployConfigOf(c *layout.DeployConfig) SavedModelDeployConfig {
	return SavedModelDeployConfig{ModelBasePath: c.GetModelBasePath(), VersionPolicy: c.GetVersionPolicy()}
}

// Bytes is the node's data.
func (c SavedModelDeployConfig) Bytes() []byte {
	o := begin(nil)
	o.str("model_base_path", c.ModelBasePath)
	o.str("version_policy", c.VersionPolicy)
	return o.end()
}

// ContainerServiceInfo is the payload of /{bzid}/container_service/{cluster}:{ctx_id}.
type ContainerServiceInfo struct {
	GRPC, HTTP, Archon, Agent, IDC string
	DebugInfo                      string // a JSON text of its own
}

// ServiceInfoOf is the payload that a container's report makes.
func ServiceInfoOf(c *container.Container) ContainerServiceInfo {
	return ContainerServiceInfo{
		GRPC: c.GetGrpcAddress(), HTTP: c.GetHttpAddress(), Archon: c.GetArchonAddress(), Agent: c.GetAgentAddress(),
		IDC: c.GetIdc(), DebugInfo: debugInfo(c.GetLayoutPath(), c.GetLayoutFilters()),
	}
}

// Bytes is the node's data.
func (c ContainerServiceInfo) Bytes() []byte {
	o := begin(nil)
	o.str("grpc", c.GRPC)
	o.str("http", c.HTTP)
	o.str("archon", c.Archon)
	o.str("agent", c.Agent)
	o.str("idc", c.IDC)
	o.str("debug_info", c.DebugInfo)
	return o.end()
}

// debugInfo is "" for a container that follows no layout.
func debugInfo(path string, filters []string) string {
	if path == "" {
		return ""
	}
	o := begin(nil)
	o.str("layout_path", path)
	o.key("layout_filters")
	o.b = append(o.b, '[')
	for i, f := range filters {
		if i > 0 {
			o.b = append(o.b, ", "...)
		}
		o.b = pyString(o.b, f)
	}
	o.b = append(o.b, ']')
	return string(o.end())
}

// BindingNode is the last step of /{bzid}/binding/{model}/{sub_graph}:{cluster}:{ctx_id}.
func BindingNode(sub string, c *container.Container) string { return sub + ":" + ContainerNode(c) }

// ContainerNode is {cluster}:{ctx_id}, the last step of /{bzid}/container_service/....
// cluster is {psm};{idc};{cluster}, where agents write unknown and None for what is not
// set. Readers split these names at colons, so one inside a step is escaped, as in URLs;
// so is a slash, which would end the step.
func ContainerNode(c *container.Container) string {
	or := func(s, absent string) string {
		if s == "" {
			return absent
		}
		return step.Replace(s)
	}
	return or(c.GetPsm(), "unknown") + ";" + or(c.GetIdc(), "None") + ";" + or(c.GetCluster(), "None") + ":" + step.Replace(c.GetId())
}

var step = strings.NewReplacer("%", "%25", ":", "%3A", "/", "%2F")
