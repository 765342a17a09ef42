package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/planted"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/loadtest/demo"
	"github.com/monolith-go/monolith/projections/lineage"
)

// TestRunner: one command line is each process of a job. TF_CONFIG says which one, or server_type beside
// the ZooKeeper port of a replica-registry; a shard and the chief are killed, and each record is learnt once.
func TestRunner(t *testing.T) {
	const records = 15_000
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(path(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("part-0.json", drawn(records))
	write("run.yaml", fmt.Sprintf("RunConfig:\n  model_dir: %s\n  model_name: movies\n  deep_insight_name: movies\n  input_path: %s\n", path("job"), path("part-*.json")))
	ports := freePorts(t, 4)
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	logs, zoo := "nats://"+at(0), at(1)
	startChild(t, "nats", "--dir", path("nats"), "--listen", at(0))
	startChild(t, "portal", "--nats", logs)
	startChild(t, "replica-registry", "--nats", logs, "--zk-listen", zoo)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	job, err := demo.OpenJob(ctx, connect.Config{NATS: logs, BZID: "demo", Level: "error", To: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = job.Close() }()
	spec, err := specfile.Read(filepath.Join(repository, "docs", "models", "deepfm.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Declare(ctx, spec); err != nil {
		t.Fatal(err)
	}
	line := []string{"runner", "--run-config", path("run.yaml"), "--batch", "8", "--checkpoint-every", "200ms", "--sync-interval", "1s"}
	launched := func(role string, index int) *child {
		t.Setenv("TF_CONFIG", fmt.Sprintf(`{"cluster":{"nats":[%q],"ps":[%q,%q],"chief":["127.0.0.1:1"]},"task":{"type":%q,"index":%d}}`, at(0), at(2), at(3), role, index))
		return startChild(t, line...)
	}
	discovered := func(role string, index int) *child {
		t.Setenv("TF_CONFIG", "")
		return startChild(t, append(line, "--nats", logs, "--set", "discovery_type=zk", "--set", "zk_server="+zoo, "--set", "num_ps=2", "--set", "server_type="+role, "--set", "index="+strconv.Itoa(index))...)
	}
	shards := []*child{launched("ps", 0), launched("ps", 1)}
	chief := launched("chief", 0)
	more := func(what string) {
		t.Helper()
		before, _ := learntOf(job)
		wait.Seen(t, what, func() (string, bool) {
			now, stopped := learntOf(job)
			if stopped {
				t.Fatalf("the job has ended before %s", what)
			}
			return fmt.Sprintf("%d learnt; chief: %s", now, tail(chief.err.String())), now > before
		})
	}
	more("something is learnt")
	shards[1].kill()
	shards[1] = launched("ps", 1)
	more("more is learnt with the shard's successor")
	chief.kill()
	chief = discovered("worker", 0)
	if err := chief.wait(t, wait.Patience); err != nil {
		t.Fatalf("the chief ends with %v: %s", err, tail(chief.err.String()))
	}
	wait.Seen(t, "the job has ended", func() (string, bool) {
		sum, stopped := learntOf(job)
		return fmt.Sprintf("%d learnt", sum), stopped && sum == records
	})
	for i, c := range shards {
		if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := c.wait(t, wait.Patience); err != nil {
			t.Errorf("shard %d: a clean stop: %v: %s", i, err, tail(c.err.String()))
		}
	}
}

// TestRunnerRefuses: a runner that cannot tell its role, or is to be one that there is not, says so.
func TestRunnerRefuses(t *testing.T) {
	t.Setenv("TF_CONFIG", "")
	for want, set := range map[string]string{"nothing says which role this process is": "num_ps=2", "monolith evaluate reads": "server_type=evaluator"} {
		c := startChild(t, "runner", "--set", set)
		if c.wait(t, wait.Patience) == nil || c.cmd.ProcessState.ExitCode() != exitUsage || !strings.Contains(c.err.String(), want) {
			t.Errorf("%s: %s", set, tail(c.err.String()))
		}
	}
}

// drawn is so many records of the planted truth, a line each.
func drawn(records int) string {
	var lines strings.Builder
	rng := rand.New(rand.NewPCG(5, 6))
	for range records {
		lines.Write(planted.Draw(rng, "deepfm").AppendJSON(nil))
		lines.WriteByte('\n')
	}
	return lines.String()
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		var err error
		if ports[i], err = freeport.Find(); err != nil {
			t.Fatal(err)
		}
	}
	return ports
}

// learntOf is how many records the newest checkpoint of the job has, and whether the job has ended.
func learntOf(job *demo.Job) (sum int64, stopped bool) {
	job.Lineage.Read(func(s lineage.State) {
		j := s.Jobs["movies"]
		stopped = j.Stopped
		if cuts := j.Restorable(); len(cuts) > 0 {
			for _, offset := range cuts[0].GetOffsets() {
				sum += offset
			}
		}
	})
	return sum, stopped
}
