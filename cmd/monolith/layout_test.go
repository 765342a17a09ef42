package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/loadtest/scenario"
	"github.com/monolith-go/monolith/projections/fleet"
)

// TestLayoutServes declares an export under a name of its own, puts it into a layout and
// starts two agents that follow the layout, each a process: nobody loads or plans
// anything, and the model answers.
func TestLayoutServes(t *testing.T) {
	t.Setenv(binaryEnv, "1") // the agents' model servers are this binary too
	w := opsStart(t, opsConfig(t.TempDir()))
	w.rate(4 * w.Config.Batch * w.Config.Partitions)
	w.learnt()
	_, err := w.job.Checkpoint(w.soon(), "with rows")
	w.must("checkpoint", err)
	tool := func(args ...string) string {
		t.Helper()
		code, out, errs := w.tool(args...)
		if code != exitOK {
			t.Fatalf("monolith %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
		}
		return out
	}
	tool("agent-controller", "--cmd=decl", "--export_base="+w.Exports(), "--model_name=uni")
	tool("agent-controller", "--cmd=pub", "--layout=l1", "--model_name=uni:*")
	for shard := range 2 {
		filters := []string{"--layout-filter=ps_{i}; i % ${shard_num} == ${shard_id}"}
		if shard == 0 {
			filters = append(filters, "--layout-filter=entry; True")
		}
		args := []string{"tfs-supervisor", "--nats", w.Config.Logs.NATS, "--bzid", w.Config.Logs.BZID, "--container", fmt.Sprintf("uni-%d", shard),
			"--shard", fmt.Sprint(shard), "--shard-num", "2", "--server-dir", t.TempDir(), "--layout", "l1", "--psm", "data.uni", "--idc", "LQ", "--cluster", "Default"}
		c := startChild(t, append(args, filters...)...)
		t.Cleanup(func() {
			if t.Failed() {
				c.kill()
				t.Logf("uni-%d: %s", shard, tail(c.err.String()))
			}
		})
	}
	entry := ""
	w.until("the layout to be served", func() (bool, string) {
		serves := map[string]string{}
		w.job.Fleet.Read(func(s fleet.State) {
			for _, r := range s.Available("uni") {
				serves[r.SubModel()] = r.GetContainer()
				if r.GetServerType() == "entry" {
					entry = r.GetGrpcAddress()
				}
			}
		})
		return maps.Equal(serves, map[string]string{"entry": "uni-0", "ps_0": "uni-0", "ps_1": "uni-1"}), fmt.Sprint(serves)
	})
	client, err := scenario.Dial(entry)
	w.must("dial the entry", err)
	defer client.Close()
	w.until("a prediction", func() (bool, string) {
		scores, err := predictPairs(client, w.ctx, "uni", "", []int64{1, 2, 3}, []int64{1, 8, 15})
		return err == nil && len(scores) == 3, fmt.Sprint(scores, err)
	})

	// The same in ZooKeeper's tree, as peers of the original read it.
	keeper := oracle.ZKClient(t, fmt.Sprintf("127.0.0.1:%d", w.Config.ZKPort), nil)
	bound, _, err := keeper.Children("/demo/binding/uni")
	w.must("read the bindings", err)
	slices.Sort(bound)
	if want := []string{"entry:data.uni;lq;default:uni-0", "ps_0:data.uni;lq;default:uni-0", "ps_1:data.uni;lq;default:uni-1"}; !slices.Equal(bound, want) {
		t.Errorf("bindings %q, want %q", bound, want)
	}
	info, _, err := keeper.Get("/demo/container_service/data.uni;lq;default:uni-1")
	if want := `"layout_path\": \"/demo/layouts/l1\", \"layout_filters\": [\"ps_(?P<i>\\\\d+); i % 2 == 1\"]`; err != nil || !strings.Contains(string(info), want) || !strings.Contains(string(info), `"idc": "lq"`) {
		t.Errorf("container service %s, %v", info, err)
	}

	// Taken out, it goes.
	tool("agent-controller", "--cmd=unpub", "--layout=l1", "--model_name=uni:*")
	w.until("nobody to serve it", func() (bool, string) {
		n := 0
		w.job.Fleet.Read(func(s fleet.State) { n = len(s.Available("uni")) })
		return n == 0, fmt.Sprint(n)
	})
}
