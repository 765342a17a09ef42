package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/fleet"
)

// TestLoadFollowsItsExport loads a model to be followed, by command line, and makes a
// newer export: every replica comes to serve it, and nobody asks again.
func TestLoadFollowsItsExport(t *testing.T) {
	cfg := opsConfig(filepath.Join(t.TempDir(), "data"))
	cfg.Replicas, cfg.Shards, cfg.Trainers, cfg.Partitions = 1, 1, 1, 1
	w := opsStart(t, cfg)
	if code, _, errs := w.tool("agent-client", "--cmd_type=load", "--model_name=movies", "--model_dir="+w.Exports(), "--follow", "--zk_servers=127.0.0.1:1"); code != exitUsage || !strings.Contains(errs, "leave --zk_servers out") {
		t.Errorf("follow by ZooKeeper: exit %d, %s", code, errs)
	}
	if code, out, errs := w.tool("agent-client", "--cmd_type=load", "--model_name=movies", "--model_dir="+w.Exports(), "--follow"); code != exitOK || !strings.Contains(out, "accepted") {
		t.Fatalf("load: exit %d, %s%s", code, out, errs)
	}
	serves := func(version int64) {
		t.Helper()
		w.until(fmt.Sprintf("version %d on entry and shard", version), func() (bool, string) {
			var say []string
			w.job.Fleet.Read(func(s fleet.State) {
				for _, r := range s.Available("movies") {
					say = append(say, fmt.Sprintf("%s %s v%d", r.Key(), replica.State_name[int32(r.GetStat())], r.GetVersion()))
				}
			})
			want := fmt.Sprintf("[movies/entry:0/0 AVAILABLE v%d movies/ps:0/0 AVAILABLE v%d]", version, version)
			return fmt.Sprint(say) == want, fmt.Sprint(say)
		})
	}
	serves(1)
	w.rate(3 * cfg.Batch)
	w.learnt()
	version, err := w.job.Checkpoint(w.soon(), "a newer export")
	w.must("checkpoint", err)
	if version < 2 {
		t.Fatalf("the newer export is version %d", version)
	}
	serves(version)
}
