package ps

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

func TestHeartbeatsAndTheEndOfAnEpoch(t *testing.T) {
	w := newWorld(t)
	beats := make(chan *replica.Heartbeat, 1000)
	stop, err := w.bus.Commands().Serve(soon(t), bus.Service{
		BZID: bzid, Name: "pulse.registry", Version: "1.0.0", Endpoints: map[string]bus.Handler{"heartbeat": func(_ context.Context, b []byte) ([]byte, error) {
			h := new(replica.Heartbeat)
			if err := protojson.Unmarshal(b, h); err != nil {
				return nil, err
			}
			beats <- h
			return []byte(`{"lease_ms":3000}`), nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var said bytes.Buffer
	w.log = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	p := w.start(w.config())
	for range 2 {
		select {
		case h := <-beats:
			c := h.GetContainer()
			if c.GetKind() != "training" || c.GetServerType() != "ps" || c.GetIndex() != 0 || c.GetJob() != job || c.GetRowsAddress() != p.Addr() || h.GetLeaving() {
				t.Fatalf("heartbeat %v", h)
			}
		case <-time.After(wait.Patience):
			t.Fatal("no heartbeat")
		}
	}
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	// What others put on the shard's subject does not keep it from its last word.
	if _, err := w.bus.Log().Append(soon(t), bus.Draft{Subject: events.Join(bzid, "shard", shard.Aggregate(job, 0)), Expect: bus.Any,
		Event: &shard.Event{Body: &shard.Event_HealthFailed{HealthFailed: &shard.HealthFailed{Reason: "says somebody else"}}}}); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	if said.Len() > 0 {
		t.Errorf("where all goes well the log warns: %s", said.String())
	}
	var last *replica.Heartbeat
	for len(beats) > 0 {
		last = <-beats
	}
	if !last.GetLeaving() {
		t.Errorf("the last heartbeat is %v, it should say that the task is leaving", last)
	}
	if f := w.follow(); f.rows["user"][1] == nil {
		t.Error("a clean stop left a row unpublished")
	}
	r, err := w.bus.Log().Get(soon(t), lastOf(t, w))
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Event.(*shard.Event).GetStopped(); s.GetEpoch() != 1 {
		t.Errorf("the last fact is %v, want stopped in epoch 1", r.Event)
	}
	// A start after a stop: the Stopped fact is what is expected, the epoch the next.
	p = w.start(w.config())
	if o, err := p.Offsets(soon(t), &rowwire.OffsetsRequest{Job: job}); err != nil || o.Epoch != 2 {
		t.Errorf("after the restart %+v, %v; want epoch 2", o, err)
	}
}

// TestStartOutlivesLostAnswers loses the answer of the first takeover and refuses the
// next call: the shard must still come up, and publish.
func TestStartOutlivesLostAnswers(t *testing.T) {
	w := newWorld(t)
	h := &hooks{Bus: w.bus}
	w.bus = h
	n := 0
	h.set(func(next func() (uint64, error), _ []bus.DeltaDraft) (uint64, error) {
		switch n++; n {
		case 1:
			if _, err := next(); err != nil {
				return 0, err
			}
			return 0, bus.ErrUnavailable
		case 2:
			return 0, bus.ErrUnavailable
		}
		return next()
	})
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	f := p.settled()
	p.sameRows(f)
	takeovers := 0
	for _, m := range f.seen {
		if decoded(t, m).GetTakeover() {
			takeovers++
		}
	}
	if takeovers != 2 {
		t.Errorf("%d takeovers are stored, want one per subject", takeovers)
	}
}

func TestAChangedModelIsNotRestored(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	w.save(w.checkpoint(1, 1, 0))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	cfg := w.config()
	cfg.Model = "learning" // slots where the checkpoint has none
	err := w.server(cfg).Run(soon(t))
	if err == nil || !strings.Contains(err.Error(), "declared anew") {
		t.Errorf("Run = %v", err)
	}
}

// TestAShardLeavesWhenItsModelWasDeclaredAnew: a process that read one declaration does not
// go on under a job that learns another, and none starts under it.
func TestAShardLeavesWhenItsModelWasDeclaredAnew(t *testing.T) {
	w := newWorld(t)
	jobStarted := func(spec *model.ModelSpec) {
		w.append("training", job, &training.Event{Body: &training.Event_JobStarted{JobStarted: &training.JobStarted{
			Job: job, ModelName: spec.GetName(), Topic: "t", Partitions: 1, Shards: 1, SpecHash: modelspec.Hash(spec),
		}}})
	}
	var was *model.ModelSpec
	cfg := w.declare(func(m *model.ModelSpec) { was = m })
	p := w.start(cfg)
	jobStarted(was)
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	other := w.declare(func(m *model.ModelSpec) { m.Tables[0].Optimizer.GetSgd().LearningRate = 1000 })
	p.teach(pstest.Teach(0, 0, 10, 20, 1, 1)) // a declaration alone changes nothing
	spec := proto.CloneOf(was)
	spec.Tables[0].Optimizer.GetSgd().LearningRate = 1000
	jobStarted(spec)
	select {
	case <-p.done:
	case <-time.After(wait.Patience):
		t.Fatal("the shard goes on by rules that its job does not learn by")
	}
	if err := p.stop(); err == nil || !strings.Contains(err.Error(), "another declaration") {
		t.Errorf("Run = %v", err)
	}
	p = w.start(other) // started again it has read the new one
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	jobStarted(was)
	if err := w.server(other).Run(soon(t)); err == nil || !strings.Contains(err.Error(), "another declaration") {
		t.Errorf("a shard of another declaration: Run = %v", err)
	}
	w.append("training", job, &training.Event{Body: &training.Event_JobStopped{JobStopped: &training.JobStopped{Reason: "r"}}})
	w.start(other) // a stopped job learns nothing
}
