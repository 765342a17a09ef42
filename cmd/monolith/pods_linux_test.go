package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/scenario"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/warm"
)

// TestPodsWithVolumesOfTheirOwn runs the pods of the rendered chart, of which no two share a folder. They learn, and make a
// checkpoint whose parts lie where they were written; what serves fetches the export from these hosts. A shard that is killed restores its
// part from its own volume and nothing is learnt twice or lost. A replica of a serving shard is added, and
// has the model from the other one while no pod of training lives.
func TestPodsWithVolumesOfTheirOwn(t *testing.T) {
	w := newPods(t)
	w.start("portal-0")
	w.ready("portal-0")
	for _, pod := range []string{"publisher-0", "registry-0", "ps-0", "ps-1", "trainer-0", "entry-0", "serving-0-0", "serving-1-0"} {
		w.start(pod)
	}
	w.open()
	w.must("declare the model", w.job.Declare(w.soon(), modelspec.MovieRanking()))
	w.rate(200)
	w.learnt()
	version := w.checkpointNow()
	for pod, want := range map[string][]string{"ps-0": {"ps_0"}, "ps-1": {"ps_1"}, "trainer-0": {"entry"}} {
		if got := w.holds(pod, "training", "movies/exported_models/*"); len(got) != 1 || filepath.Base(got[0]) != want[0] {
			t.Errorf("of exports %s holds %v, want %v", pod, got, want)
		}
	}
	if parts := w.holds("ps-1", "training", "movies/model.ckpt-*/*"); !slices.Contains(parts, fmt.Sprintf("movies/model.ckpt-%d/ps_1", version)) ||
		slices.ContainsFunc(parts, func(p string) bool { return filepath.Base(p) != "ps_1" }) {
		t.Errorf("of checkpoints ps-1 holds %v", parts)
	}
	w.loadPods(version, 1)
	w.served("entry-0", "serving-0-0", "serving-1-0")
	w.asks()

	w.kill("ps-1")
	w.rate(100)
	w.start("ps-1")
	w.ready("ps-1")
	ends := w.learnt()
	w.checkpointNow() // which publishes what is learnt
	w.once(ends)
	if log := w.running["ps-1"]["ps"].log.String(); strings.Contains(log, "part of a checkpoint is fetched") || !strings.Contains(log, fmt.Sprintf("checkpoint=%d", version)) {
		t.Errorf("ps-1 does not start from its own part of checkpoint %d:\n%s", version, log)
	}
	w.replayed()
	w.gathered()

	for _, pod := range []string{"trainer-0", "ps-0", "ps-1"} {
		w.kill(pod)
	}
	w.start("serving-0-1")
	w.loadPods(version, 2)
	w.served("serving-0-1")
	w.asks()
}

// gathered has one pod fetch the newest checkpoint and its export from the others, proves by it what the logs say, and
// exports it once more.
func (w *podsWorld) gathered() {
	w.t.Helper()
	whole := filepath.Join(w.dir, "mnt/training/whole")
	in := func(args ...string) string {
		w.t.Helper()
		out, err := w.exec("ps-1", args...)
		if err != nil {
			w.t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return out
	}
	logs := []string{"--nats", "nats://monolith-nats:4222", "--kafka", "kafka:9092"}
	proof := append([]string{"verify", "--dir", filepath.Join(w.dir, "mnt/work/proof")}, logs...)
	if out, err := w.exec("ps-1", proof...); err == nil || !strings.Contains(out, "lies in none of") {
		w.t.Errorf("by what lies on one volume: %v\n%s", err, out)
	}
	if out := in("checkpoint", "fetch", "--insecure-transfer", "--all", "--to", whole); !strings.Contains(out, " in "+whole) {
		w.t.Errorf("fetched: %s", out)
	}
	if p, err := (&warm.Config{Dir: filepath.Join(w.disk("ps-1", "training"), "whole")}).Find(); err != nil || p.Fact().GetJob() != host.JobName {
		w.t.Errorf("a new job begins from %v, %v", p, err)
	}
	if out := in(append(proof, "--parts", whole)...); !strings.Contains(out, " 0 failed") {
		w.t.Errorf("proved: %s", out)
	}
	export := []string{"export", "--nats", "nats://monolith-nats:4222", "--to", filepath.Join(w.dir, "mnt/work/out")}
	if out, err := w.exec("ps-1", export...); err == nil || !strings.Contains(out, "ps_0 lies in none of") {
		w.t.Errorf("exported from what lies on one volume: %v\n%s", err, out)
	}
	if out := in(append(export, "--parts", whole)...); !strings.Contains(out, "ps_1") {
		w.t.Errorf("exported: %s", out)
	}
}

// checkpointNow makes a checkpoint with an export.
func (w *podsWorld) checkpointNow() int64 {
	w.t.Helper()
	version, err := w.job.Checkpoint(w.soon(), "test")
	w.must("checkpoint", err)
	w.job.Lineage.Read(func(s lineage.State) {
		for _, f := range s.Jobs[host.JobName].Checkpoint(version).GetShards() {
			if !f.GetVerified() {
				w.t.Errorf("nobody has read back %v", f)
			}
		}
	})
	return version
}

// loadPods asks for the model as a user does who knows the chart's paths.
func (w *podsWorld) loadPods(version int64, replicas uint32) {
	w.t.Helper()
	_, err := w.job.Load(w.soon(), &model.Load{ModelName: host.ModelName, ModelDir: filepath.Join(w.dir, "mnt/training/movies/exported_models"), Job: host.JobName, Version: version, Replicas: replicas})
	w.must("load the model", err)
}

// served waits until these pods serve the model, from copies on their own volumes.
func (w *podsWorld) served(pods ...string) {
	w.t.Helper()
	for _, pod := range pods {
		w.until(pod+" to serve the model", func() (bool, string) {
			var states []string
			w.job.Fleet.Read(func(f fleet.State) {
				for key, r := range f.Replicas {
					if r.Replica.V.GetContainer() == "monolith-"+pod && r.Alive {
						states = append(states, key+" "+r.Replica.V.GetStat().String())
					}
				}
			})
			ok := len(states) > 0 && !slices.ContainsFunc(states, func(s string) bool { return !strings.HasSuffix(s, " "+replica.State_AVAILABLE.String()) })
			return ok, fmt.Sprint(states)
		})
		w.ready(pod)
		if copies := w.holds(pod, "copies", "*/*/*/*"); len(copies) == 0 {
			w.t.Errorf("%s serves, and has no copy", pod)
		}
		if log := w.running[pod]["model-sync"].log.String(); strings.Contains(log, "level=ERROR") {
			w.t.Errorf("%s:\n%s", pod, log)
		}
	}
}

// asks has the entry predict.
func (w *podsWorld) asks() {
	w.t.Helper()
	c, err := scenario.Dial(w.address("entry-0") + ":8500")
	w.must("dial the entry", err)
	defer c.Close()
	w.until("a prediction", func() (bool, string) {
		scores, err := c.Score(w.ctx, nil, host.ModelName, "", []rating.Record{{Rating: opsRating(1)}, {Rating: opsRating(2)}})
		return err == nil && len(scores) == 2, fmt.Sprint(scores, err)
	})
}
