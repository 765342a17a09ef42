package ps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
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
	"github.com/monolith-go/monolith/internal/wire/rowwire"
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
		case <-time.After(20 * time.Second):
			t.Fatal("no heartbeat")
		}
	}
	p.teach(teach(0, 0, 0, 10, 1, 1))
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
	p.teach(teach(0, 0, 0, 10, 1, 1))
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

// forgetful is a stream that has discarded the subject's last message.
type forgetful struct {
	bus.Deltas
	last      uint64
	published []uint64 // expected by the calls
	stored    bus.StoredDelta
}

func (f *forgetful) LastOf(context.Context, string) (uint64, error) { return f.last, nil }

func (f *forgetful) Get(context.Context, uint64) (bus.StoredDelta, error) { return f.stored, nil }

func (f *forgetful) Publish(_ context.Context, d ...bus.DeltaDraft) (uint64, error) {
	f.published = append(f.published, d[0].Expect)
	if d[0].Expect != f.last {
		return 0, bus.ErrConflict
	}
	f.last = 100
	return 100, nil
}

func TestConflictsAreToldApart(t *testing.T) {
	f, err := newSchema(Config{Job: job, Shards: 1}, counting())
	if err != nil {
		t.Fatal(err)
	}
	newest := uint64(3)
	send := func(d *forgetful) (*publisher, error) {
		p := newPublisher(f, bzid, d, nil, func(context.Context) (uint64, error) { return newest, nil })
		p.begin(3, map[string]uint64{p.rows: 40})
		p.queue = [][]bus.DeltaDraft{{{Subject: p.rows, Data: []byte("first")}, {Subject: p.rows, Data: []byte("last")}}}
		return p, p.send(t.Context())
	}
	discarded := &forgetful{last: 0}
	if p, err := send(discarded); err != nil || p.seq() != 100 || len(p.queue) != 0 || fmt.Sprint(discarded.published) != "[40 0]" {
		t.Errorf("the expected message was discarded: %v after calls that expected %v", err, discarded.published)
	}
	own := &forgetful{last: 42, stored: bus.StoredDelta{Seq: 42, Data: []byte("last")}}
	if p, err := send(own); err != nil || p.seq() != 42 || len(p.queue) != 0 {
		t.Errorf("stored by a call whose answer was lost: %v", err)
	}
	stranger := &forgetful{last: 42, stored: bus.StoredDelta{Seq: 42, Data: []byte("of nobody")}}
	if p, err := send(stranger); err != nil || p.seq() != 100 || fmt.Sprint(stranger.published) != "[40 42]" {
		t.Errorf("a stranger has written: %v after calls that expected %v", err, stranger.published)
	}
	newest = 4
	successor := &forgetful{last: 42, stored: bus.StoredDelta{Seq: 42, Data: []byte{}}}
	if _, err := send(successor); !errors.Is(err, errFenced) {
		t.Errorf("a successor has written: %v, want errFenced", err)
	}
}

// A writer behind whom nobody has written need not ask the facts whether it is followed.
func TestAWriterAloneAsksNobody(t *testing.T) {
	f, err := newSchema(Config{Job: job, Shards: 1}, counting())
	if err != nil {
		t.Fatal(err)
	}
	asked, newest := 0, uint64(3)
	d := &forgetful{last: 40}
	p := newPublisher(f, bzid, d, nil, func(context.Context) (uint64, error) { asked++; return newest, nil })
	p.begin(3, map[string]uint64{p.rows: 40, p.vars: 40})
	for _, tc := range []struct {
		last, newest uint64
		asked        int
		fenced       bool
	}{{40, 3, 0, false}, {39, 3, 0, false}, {41, 3, 2, false}, {41, 4, 2, false}, {42, 4, 3, true}} {
		d.last, newest = tc.last, tc.newest
		if err := p.unfenced(t.Context()); errors.Is(err, errFenced) != tc.fenced || !tc.fenced && err != nil || asked != tc.asked {
			t.Errorf("the subjects end at %d, epoch %d is the newest: %v after %d questions, want %d", tc.last, tc.newest, err, asked, tc.asked)
		}
	}
}

func TestTooFewShardsAreRefused(t *testing.T) {
	spec := counting()
	spec.Layers = append([]*model.DenseLayer{{Name: "wide", Units: 16384, Activation: model.Activation_RELU}, {Name: "next", Units: 1024}}, spec.Layers...)
	_, err := newSchema(Config{Job: job, Shards: 1}, spec)
	if err == nil || !strings.Contains(err.Error(), "train with 2 shards or more") {
		t.Errorf("newSchema = %v", err)
	}
	if _, err := newSchema(Config{Job: job, Shards: 2}, spec); err != nil {
		t.Error(err)
	}
}

func TestAChangedModelIsNotRestored(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(teach(0, 0, 0, 10, 1, 1))
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

// FuzzApply throws ranges and gradients at a shard: what is refused changes nothing,
// what is applied is applied whole, and nothing panics.
func FuzzApply(f *testing.F) {
	bits := math.Float32bits
	f.Add(int64(0), int64(10), int64(1), int64(2), bits(1), bits(-1), int64(5), uint8(0))
	f.Add(int64(0), int64(10), int64(1), int64(1), bits(9e14), bits(9e14), int64(5), uint8(1))
	f.Add(int64(0), int64(10), int64(1), int64(1), bits(5e14), bits(5e14), int64(5), uint8(1))
	f.Add(int64(0), int64(1), int64(math.MinInt64), int64(2), bits(float32(math.NaN())), bits(float32(math.Inf(1))), int64(-5), uint8(2))
	f.Add(int64(3), int64(2), int64(-7), int64(2), bits(1e38), bits(-1e38), int64(1<<40), uint8(3))
	form, err := newSchema(Config{Job: job, Shards: 1}, learning())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, from, to, id1, id2 int64, g1, g2 uint32, unix int64, shape uint8) {
		s := newState(form)
		if err := s.load(nil); err != nil {
			t.Fatal(err)
		}
		s.resume(1, 0)
		a, b := math.Float32frombits(g1), math.Float32frombits(g2)
		r := &rowwire.ApplyRequest{
			Job: job, Epoch: 1, From: from, To: to, RecordUnix: unix,
			Tables: []rowwire.TableGrads{{Table: "user", IDs: []int64{id1, id2}, Grads: []float32{a, 0, b, a}}},
		}
		if shape&1 != 0 {
			r.Tables = append(r.Tables, rowwire.TableGrads{Table: "movie", IDs: []int64{id2}, Grads: []float32{b, a, 0}})
		}
		if shape&2 != 0 {
			r.Dense = []rowwire.NamedTensor{{Name: "out/bias", Values: []float32{a}}}
		}
		before, err := s.hash()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		res, aerr := s.apply(ctx, r, "")
		after, err := s.hash()
		if err != nil {
			t.Fatal(err)
		}
		if aerr != nil {
			if after.Hash != before.Hash || len(after.Next) != 0 || after.Step != 0 {
				t.Fatalf("refused (%v), and yet %+v became %+v", aerr, before, after)
			}
			return
		}
		distinct := uint64(2)
		if id1 == id2 {
			distinct = 1
		}
		if !res.Applied || after.Next[0] != to || after.Step != 1 || after.Rows["user"] != distinct {
			t.Fatalf("applied: %+v, and the shard stands at %+v", res, after)
		}
	})
}

// BenchmarkApply is one range with 2,000 rows of 2 floats, without the wire.
func BenchmarkApply(b *testing.B) {
	form, err := newSchema(Config{Job: job, Shards: 1}, learning())
	if err != nil {
		b.Fatal(err)
	}
	s := newState(form)
	if err := s.load(nil); err != nil {
		b.Fatal(err)
	}
	s.resume(1, 0)
	ids, grads := make([]int64, 2000), make([]float32, 4000)
	for i := range ids {
		ids[i] = int64(i)
	}
	r := &rowwire.ApplyRequest{Job: job, Epoch: 1, Tables: []rowwire.TableGrads{{Table: "user", IDs: ids, Grads: grads}}}
	for b.Loop() {
		r.From, r.To = r.To, r.To+1
		if _, err := s.apply(context.Background(), r, ""); err != nil {
			b.Fatal(err)
		}
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
	cfg := w.declare(func(*model.ModelSpec) {})
	p := w.start(cfg)
	was := p.st.spec
	jobStarted(was)
	p.teach(teach(0, 0, 0, 10, 1, 1))
	other := w.declare(func(m *model.ModelSpec) { m.Tables[0].Optimizer.GetSgd().LearningRate = 1000 })
	p.teach(teach(0, 0, 10, 20, 1, 1)) // a declaration alone changes nothing
	spec := proto.CloneOf(was)
	spec.Tables[0].Optimizer.GetSgd().LearningRate = 1000
	jobStarted(spec)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		t.Fatal("the shard goes on by rules that its job does not learn by")
	}
	if err := p.stop(); err == nil || !strings.Contains(err.Error(), "another declaration") {
		t.Errorf("Run = %v", err)
	}
	p = w.start(other) // started again it has read the new one
	p.teach(teach(0, 0, 0, 10, 1, 1))
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
