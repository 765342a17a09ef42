package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// The original's commands against everything running, by NATS and by the ZooKeeper port.
func TestCompatStack(t *testing.T) {
	s := compatStack{opsServe(t, opsConfig(t.TempDir()))}
	s.served(t)
	s.asked(t)
	s.layouts(t)
	s.loads(t)
	s.loadsByNode(t)
}

type compatStack struct{ *opsWorld }

// tool runs a command that must succeed.
func (s compatStack) tool(args ...string) string {
	s.t.Helper()
	code, out, errs := s.opsWorld.tool(args...)
	if code != exitOK {
		s.t.Fatalf("monolith %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// ensemble makes a command read and write by the ZooKeeper port.
func (s compatStack) ensemble() string {
	return fmt.Sprintf("--zk_servers=127.0.0.1:%d", s.Config.ZKPort)
}

// served holds that the model is: both ways say so, in the same words.
func (s compatStack) served(t *testing.T) {
	model := "--model_name=" + host.ModelName
	byNATS := s.tool("client", "--cmd_type=status", model, "--compat")
	served := regexp.MustCompile(`^LoadSate\(portal=True, publish=True, service=\{'entry:0:0': 30, 'ps:0:0': 30, 'ps:0:1': 30, 'ps:1:0': 30, 'ps:1:1': 30\}\)\n$`)
	if !served.MatchString(byNATS) {
		t.Errorf("status %s", byNATS)
	}
	for _, args := range [][]string{
		{"client", "--cmd_type=status", model, "--compat"},
		{"agent-client", "--cmd_type=addr", model, "--compat"},
		{"agent-client", "--cmd_type=get", "--args=pub", "--compat"},
		{"agent-client", "--cmd_type=get", "--args=portal"},
		{"agent-client", "--cmd_type=get", "--args=lock", "--compat"},
		{"agent-controller", "--cmd=bzid_info", "--compat"},
	} {
		if a, b := s.tool(args...), s.tool(append(args, s.ensemble())...); a != b {
			t.Errorf("%v: NATS says\n%sZooKeeper says\n%s", args, a, b)
		}
	}
	if out := s.tool("agent-client", "--cmd_type=addr", model); strings.Count(out, "AVAILABLE") != 5 {
		t.Errorf("addr\n%s", out)
	}
}

// asked holds that the entry answers tfs-client: states, signatures, random samples by the signature.
func (s compatStack) asked(t *testing.T) {
	ask := func(args ...string) string {
		code, out, errs := opsTool(append([]string{"tfs-client", fmt.Sprintf("--target=127.0.0.1:%d", s.Config.GRPCPort), "--model_name=" + host.ModelName}, args...)...)
		if code != exitOK {
			t.Fatalf("tfs-client %v: exit %d\n%s%s", args, code, out, errs)
		}
		return out
	}
	if out := ask("status"); !regexp.MustCompile(`^` + host.ModelName + `  \d+  AVAILABLE\n$`).MatchString(out) {
		t.Errorf("status %s", out)
	}
	var answer struct {
		Outputs map[string]struct {
			Values []float64 `json:"float_val"`
		} `json:"outputs"`
	}
	out := ask("get", "--batch_size=3", "--json")
	if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Outputs) != 1 {
		t.Errorf("get: %v\n%s", err, out)
	}
	for name, o := range answer.Outputs {
		if len(o.Values) != 3 {
			t.Errorf("output %s of 3 samples: %v\n%s", name, o.Values, out)
		}
	}
	if out := ask("profile", "--profile_count=20", "--parallel_num=2", "--json"); !strings.Contains(out, `"count":20`) {
		t.Errorf("profile %s", out)
	}
}

// layouts declares saved models, puts them into a layout and takes one out.
func (s compatStack) layouts(t *testing.T) {
	s.tool("agent-controller", "--cmd=decl", "--export_base="+s.Exports(), "--model_name=movies", "--overwrite=1")
	s.tool("agent-controller", "--cmd=pub", "--layout=l1", "--model_name=movies:ps_*")
	var info struct {
		Layouts map[string][]string `json:"layout_info"`
	}
	bzidInfo := func() []string {
		t.Helper()
		if err := json.Unmarshal([]byte(s.tool("agent-controller", "--json")), &info); err != nil {
			t.Fatal(err)
		}
		return info.Layouts["l1"]
	}
	if got := fmt.Sprint(bzidInfo()); got != "[movies:ps_0 movies:ps_1]" {
		t.Errorf("l1 holds %s", got)
	}
	s.tool("agent-controller", "--cmd=unpub", "--layout=l1", "--model_name=movies:ps_0")
	if got := fmt.Sprint(bzidInfo()); got != "[movies:ps_1]" {
		t.Errorf("l1 holds %s", got)
	}
	if code, _, errs := s.opsWorld.tool("agent-controller", "--cmd=decl", "--export_base=/nowhere"); code != exitFailure || !strings.Contains(errs, "portal.declareExport") {
		t.Errorf("exit %d %s", code, errs)
	}
}

// loads is another model, from the same export: loaded, seen, refused twice, unloaded.
func (s compatStack) loads(t *testing.T) {
	if out := s.tool("client", "--cmd_type=load", "--model_name=m2", "--model_dir="+s.Exports(), "--compat"); out != "" {
		t.Errorf("load says %q", out)
	}
	if code, _, errs := s.opsWorld.tool("client", "--cmd_type=load", "--model_name=m2", "--model_dir="+s.Exports()); code != exitFailure || !strings.Contains(errs, "m2 has exists") {
		t.Errorf("exit %d %s", code, errs)
	}
	s.until("m2 is served", func() (bool, string) {
		out := s.tool("client", "--cmd_type=status", "--model_name=m2", "--compat")
		return strings.Contains(out, "'entry:0:0': 30") && strings.Contains(out, "'ps:1:0': 30"), out
	})
	s.tool("agent-client", "--cmd_type=unload", "--model_name=m2")
	s.until("m2 is gone", func() (bool, string) {
		out := s.tool("client", "--cmd_type=status", "--model_name=m2", "--compat")
		return strings.HasPrefix(out, "LoadSate(portal=False, publish=False"), out
	})
	if code, _, errs := s.opsWorld.tool("agent-client", "--cmd_type=unload", "--model_name=m2"); code != exitFailure || !strings.Contains(errs, "not loaded") {
		t.Errorf("exit %d %s", code, errs)
	}
	s.tool("agent-client", "--cmd_type=unload", "--model_name=m2", "--compat") // which ignores it
}

// loadsByNode is one by a portal node, as the original's own command would write it into our
// port.
func (s compatStack) loadsByNode(t *testing.T) {
	s.tool("agent-client", "--cmd_type=load", "--model_name=m3", "--model_dir="+s.Exports(), s.ensemble())
	s.until("m3 is served", func() (bool, string) {
		out := s.tool("client", "--cmd_type=status", "--model_name=m3", "--compat", s.ensemble())
		return strings.Contains(out, "'entry:0:0': 30") && strings.Contains(out, "'ps:1:0': 30"), out
	})
	s.tool("agent-client", "--cmd_type=unload", "--model_name=m3", s.ensemble())
	s.until("m3 is gone", func() (bool, string) {
		out := s.tool("client", "--cmd_type=status", "--model_name=m3", "--compat")
		return strings.HasPrefix(out, "LoadSate(portal=False, publish=False"), out
	})
	if out := s.tool("agent-client", "--cmd_type=clean", "--args=portal"); out != "1 models unloaded\n" {
		t.Errorf("clean says %q", out)
	}
}

// The same against a real ensemble, where the commands write the nodes themselves.
func TestCompatRealZooKeeper(t *testing.T) {
	at := oracle.ZooKeeper(t).Addr
	with := func(args string, more ...string) []string {
		return append(append(strings.Fields(args), "--zk_servers="+at, "--bzid=b"), more...)
	}
	c := oracle.ZKClient(t, at, nil)
	node := func(path, want string) {
		t.Helper()
		data, _, err := c.Get(path)
		if err != nil || string(data) != want {
			t.Errorf("%s: %q %v, want %q", path, data, err, want)
		}
	}
	wants(t, "", with("agent-client --cmd_type=load --model_name=m1 --model_dir=/d/m1/exported_models --compat")...)
	node("/b/portal/m1", `{"model_name": "m1", "model_dir": "/d/m1/exported_models", "ckpt": null, "num_shard": -1, "action": "NONE", "spec_replicas": []}`)
	wants(t, "", with("agent-client --cmd_type=load --model_name=m1 --model_dir=/d/m1/exported_models --ckpt=model.ckpt-7 --num_shard=3 --compat")...)
	node("/b/portal/m1", `{"model_name": "m1", "model_dir": "/d/m1/exported_models", "ckpt": "model.ckpt-7", "num_shard": 3, "action": "NONE", "spec_replicas": []}`)
	refuses(t, exitFailure, "m1 has exists", with("client --cmd_type=load --model_name=m1 --model_dir=/d")...)
	wants(t, "LoadSate(portal=True, publish=False, service={})\n", with("client --cmd_type=status --model_name=m1 --compat")...)
	wants(t, "", with("client --cmd_type=load --model_name=m2 --model_dir=/d --compat")...)
	wants(t, "", with("agent-client --cmd_type=unload --model_name=m1 --compat")...)
	wants(t, "", with("agent-client --cmd_type=unload --model_name=m1 --compat")...) // the original ignores it
	refuses(t, exitFailure, "m1 is not loaded", with("agent-client --cmd_type=unload --model_name=m1")...)

	// A data centre between, as the first agents write it.
	for path, data := range map[string]string{
		"/b/service/m2/lq:default/ps:0/7":              `{"address": "10.0.0.1:4003", "stat": 30, "archon_address": "10.0.0.1:4001"}`,
		"/b/service/m2/lq:default/entry:0/00000000012": `{"address": "10.0.0.2:4003", "stat": 0}`,
		"/b/service/m2/yg:default/ps:0/8":              `{"stat": 50}`,
		"/b/locks/l":                                   "x'y",
	} {
		for i, r := range path[1:] {
			if r != '/' {
				continue
			}
			if _, err := c.Create(path[:i+1], nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				t.Fatal(err)
			}
		}
		if _, err := c.Create(path, []byte(data), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	wants(t, "/b/service/m2/lq:default/entry:0/00000000012\tarchon_address: None\taddress: 10.0.0.2:4003\tstate: UNKNOWN\n"+
		"/b/service/m2/lq:default/ps:0/7\tarchon_address: 10.0.0.1:4001\taddress: 10.0.0.1:4003\tstate: AVAILABLE\n"+
		"/b/service/m2/yg:default/ps:0/8\tarchon_address: None\taddress: None\tstate: END\n", with("agent-client --cmd_type=addr --model_name=m2 --compat")...)
	wants(t, "l b\"x'y\"\n", with("agent-client --cmd_type=get --args=lock --compat")...)
	wants(t, "1 nodes deleted below /b/portal\n", with("agent-client --cmd_type=clean --args=portal")...)
	wants(t, "{}\n", with("agent-client --cmd_type=get --args=portal --compat")...)
	wants(t, "", with("agent-client --cmd_type=clean --args=addr --compat")...)
	wants(t, "m2 has not load !\n", with("agent-client --cmd_type=addr --model_name=m2 --compat")...)

	dir := filepath.Join(t.TempDir(), "exported_models")
	for _, sub := range []string{"entry", "ps_0", "ps_1", ".hidden"} {
		if err := os.MkdirAll(filepath.Join(dir, sub, "7"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	decl := with("agent-controller --cmd=decl --model_name=ffm", "--export_base="+dir)
	wants(t, "\n", append(decl, "--compat")...)
	node("/b/saved_models/ffm/entry", fmt.Sprintf(`{"model_base_path": "%s/entry", "version_policy": "latest"}`, dir))
	node("/b/saved_models/ffm/ps_1", fmt.Sprintf(`{"model_base_path": "%s/ps_1", "version_policy": "latest_once"}`, dir))
	refuses(t, exitFailure, "ffm is declared already, with entry, ps_0, ps_1", decl...)
	wants(t, "ffm is declared, with entry, ps_0, ps_1\n", append(decl, "--overwrite=1")...)
	wants(t, "\n", with("agent-controller --cmd=pub --layout=l1 --model_name=ffm:ps_* --compat")...)
	wants(t, "3 sub-graphs of ffm are published to l1: entry, ps_0, ps_1\n", with("agent-controller --cmd=pub --layout=l1 --model_name=ffm:*")...)
	wants(t, "2 sub-graphs of ffm are unpublished from l1: ps_0, ps_1\n", with("agent-controller --cmd=unpub --layout=l1 --model_name=ffm:ps_?")...)
	wants(t, fmt.Sprintf("model ffm: 0 of 3 sub-graphs are served\n  entry  %[1]s/entry (latest)  served by 0\n  ps_0  %[1]s/ps_0 (latest_once)  served by 0\n"+
		"  ps_1  %[1]s/ps_1 (latest_once)  served by 0\nlayout l1 holds [ffm:entry]\n", dir), with("agent-controller")...)
}
