package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/registry"
)

// run is a command as a user gives it.
func (r room) run(command string, args ...string) (stdout, stderr string, err error) {
	r.t.Helper()
	cmd := &cobra.Command{Use: command, SilenceUsage: true, SilenceErrors: true}
	var out, told bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&told)
	cmd.SetArgs(args)
	switch command {
	case "train":
		c := &Train{}
		Bind(cmd, c, func(ctx context.Context) error { return c.Run(ctx, &out, &told) })
	case "evaluate":
		c := &Evaluate{}
		Bind(cmd, c, func(ctx context.Context) error { return c.Run(ctx, &out) })
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), wait.Patience)
	defer cancel()
	err = cmd.ExecuteContext(ctx)
	return out.String(), told.String(), err
}

// TestTrainByRunConfig: what a run configuration says is what the job does, and the job's first fact and
// the report name it.
func TestTrainByRunConfig(t *testing.T) {
	r := newRoom(t)
	r.write("a.json", ratings(1, 500))
	r.write("run.yaml", "RunConfig:\n  num_ps: 2\n  model_dir: steered\n  train.max_steps: 4\n  checkpoints_max_to_keep: 3\n  save_summary_steps: 10\n  enable_sync_training: True\n")
	out, told, err := r.run("train", "--spec", "model.yaml", "--files", "a.json", "--batch", "50", "--run-config", "run.yaml", "--set", "train.max_steps=5", "--json")
	if err != nil {
		t.Fatalf("%v: %s", err, told)
	}
	var l Learnt
	if err := json.Unmarshal([]byte(out), &l); err != nil {
		t.Fatal(err)
	}
	if l.Learnt != 250 || !strings.HasSuffix(l.Dir, "/steered") || len(l.RunConfig) != 6 {
		t.Errorf("%+v", l)
	}
	for _, line := range []string{"run configuration:\n", "num_ps 2 (file): --shards 2\n", "train.max_steps 5 (--set): --max-steps 5\n", "save_summary_steps 10 (file) does nothing: "} {
		if !strings.Contains(told, line) {
			t.Errorf("%q is not told: %s", line, told)
		}
	}
	b, closed, err := host.DialFolder(t.Context(), l.Dir, connect.Config{BZID: "demo", Level: "warn"}, "test")
	if err != nil {
		t.Fatal(err)
	}
	cuts, err := folded(t.Context(), b, registry.Lineage.Only("demo"))
	if err = errors.Join(err, closed()); err != nil {
		t.Fatal(err)
	}
	started := cuts.Jobs["likes"].Started.V
	want := []string{"checkpoints_max_to_keep=3", "enable_sync_training=true", "model_dir=steered", "num_ps=2", "save_summary_steps=10", "train.max_steps=5"}
	got := slices.Sorted(slices.Values(started.GetOverrides()))
	if started.GetShards() != 2 || !started.GetDeterministic() || started.GetFiles().GetMaxSteps() != 5 || !slices.Equal(got, want) {
		t.Errorf("the job began as %v", started)
	}

	out, told, err = r.run("evaluate", "--files", "a.json", "--json", "--set", "model_dir=steered", "--set", "restore_ckpt=/elsewhere/model.ckpt-1", "--set", "mode=eval")
	var q Quality
	if err := errors.Join(err, json.Unmarshal([]byte(out), &q)); err != nil || q.Checkpoint != 1 {
		t.Errorf("checkpoint %d, %v: %s", q.Checkpoint, err, told)
	}
	if _, _, err := r.run("evaluate", "--files", "a.json", "--set", "mode=train"); !errors.Is(err, flags.ErrUsage) {
		t.Errorf("the mode changed: %v", err)
	}
}

// TestRestoreTimeout: a new job that does not begin in time with what it restores fails, and begins at the
// next call.
func TestRestoreTimeout(t *testing.T) {
	r := newRoom(t)
	r.write("a.json", ratings(1, 100))
	r.train("", "--files", "a.json", "--dir", "first")
	r.train("did not begin with the checkpoint that it restores within --restore-timeout 1ns", "--files", "a.json", "--dir", "second", "--restore-dir", "first", "--restore-timeout", "1ns")
	if l := r.train("", "--files", "a.json", "--dir", "second", "--restore-dir", "first", "--restore-timeout", "10m"); l.Learnt != 100 || l.Parent == "" {
		t.Errorf("%+v", l)
	}
}
