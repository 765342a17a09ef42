package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/projections/registry"
)

// TestReturnToACheckpoint: on command every shard and every partition goes back to an
// earlier checkpoint, the trainers learn on from there to the end of the topic, and the
// replicas end up with the rows of the new timeline.
func TestReturnToACheckpoint(t *testing.T) {
	cfg := opsConfig(t.TempDir())
	cfg.Replicas = 1
	w := opsServe(t, cfg)
	w.rate(200)
	w.learnt()
	then := w.agree()
	w.rate(200)
	w.learnt()
	w.agree()
	var answer struct {
		Checkpoint, Export int64
		Seq                uint64
	}
	var out, told bytes.Buffer
	if code := run([]string{"job", "restore", "--nats", w.Config.Logs.NATS, "--job", host.JobName, "--checkpoint", fmt.Sprint(then.GetId()), "--reason", "test"}, &out, &told); code != exitOK {
		t.Fatalf("monolith job restore ends with %d: %s", code, told.String())
	}
	w.must("read the answer", json.Unmarshal(out.Bytes(), &answer))
	if answer.Checkpoint != then.GetId() || answer.Export <= then.GetId()+1 {
		t.Errorf("answer %+v to a return to checkpoint %d", answer, then.GetId())
	}
	last, err := w.job.Bus.Log().Last(w.soon())
	w.must("find the end of the log", err)
	shards, err := follow.Replay(w.soon(), w.job.Bus.Log(), registry.Fleet.Only(w.Config.Logs.BZID), last)
	w.must("replay", err)
	for i, x := range shards.Shards[host.JobName] {
		r := x.Ready.V
		if r.GetRestored() != answer.Seq || r.GetCheckpoint() != then.GetId() || !maps.Equal(r.GetOffsets(), then.GetOffsets()) {
			t.Errorf("shard %d is ready as %v, checkpoint %d is at %v", i, r, then.GetId(), then.GetOffsets())
		}
	}
	if n := len(shards.Shards[host.JobName]); n != w.Config.Shards {
		t.Errorf("%d shards are ready, want %d", n, w.Config.Shards)
	}
	w.rate(50)
	w.learnt()
	w.agree()
}
