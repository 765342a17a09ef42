package ps

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/ps/pstest"
	"github.com/monolith-go/monolith/services/ps/publish"
)

// hooks is a bus whose delta publishing a test can break.
type hooks struct {
	bus.Bus
	mu      sync.Mutex
	publish func(next func() (uint64, error), drafts []bus.DeltaDraft) (uint64, error)
}

type hookedDeltas struct {
	bus.Deltas
	h *hooks
}

func (h *hooks) Deltas() bus.Deltas { return hookedDeltas{h.Bus.Deltas(), h} }

func (h *hooks) set(f func(next func() (uint64, error), drafts []bus.DeltaDraft) (uint64, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publish = f
}

func (d hookedDeltas) Publish(ctx context.Context, drafts ...bus.DeltaDraft) (uint64, error) {
	d.h.mu.Lock()
	f := d.h.publish
	d.h.mu.Unlock()
	next := func() (uint64, error) { return d.Deltas.Publish(ctx, drafts...) }
	if f == nil {
		return next()
	}
	return f(next, drafts)
}

func TestFollowersEndUpWithTheShardsRows(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	for i := range int64(20) {
		r := pstest.Teach(0, int(i%3), i/3*2, i/3*2+2, float32(i), i, i+1, 40-i)
		r.Dense = []rowwire.NamedTensor{{Name: "out/bias", Values: []float32{1}}}
		p.teach(r)
	}
	f := p.settled()
	p.sameRows(f)
	learnt := map[int32]int64{}
	for _, r := range f.ranges {
		if r.From != learnt[r.Partition] {
			t.Errorf("partition %d: a range starts at %d, %d was published before", r.Partition, r.From, learnt[r.Partition])
		}
		learnt[r.Partition] = r.To
	}
	if want := map[int32]int64{0: 14, 1: 14, 2: 12}; !reflect.DeepEqual(learnt, want) {
		t.Errorf("the ranges published end at %v, want %v", learnt, want)
	}
}

// TestLostTimelineIsOverwritten restarts a shard from a checkpoint after it published
// more: followers must end up with what it holds now, rows it no longer has included.
func TestLostTimelineIsOverwritten(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.Model = "learning"
	p := w.start(cfg)
	p.teach(pstest.Teach(0, 0, 0, 10, 0.1, 1, 2))
	w.save(w.checkpoint(1, 1, 0))
	saved := p.hash()
	r := pstest.Teach(0, 0, 10, 20, 0.1, 2, 3)
	r.Dense = []rowwire.NamedTensor{{Name: "out/bias", Values: []float32{1}}}
	p.teach(r)
	lost := p.settled()
	if _, ok := lost.rows["user"][3]; !ok {
		t.Fatal("the later row was not published; the test shows nothing")
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}

	p = w.start(cfg)
	if got := p.hash(); got != saved {
		t.Errorf("restored to %s, the checkpoint was %s", got, saved)
	}
	o, err := p.Offsets(soon(t), &rowwire.OffsetsRequest{Job: job})
	if err != nil || o.Epoch != 2 || o.Step != 1 || o.Next[0] != 10 {
		t.Errorf("restored to %+v, %v", o, err)
	}
	f := p.settled()
	p.sameRows(f)
	if _, ok := f.rows["user"][3]; ok {
		t.Error("a row of the lost timeline is still served")
	}
	// The range that was lost is learnt again, once.
	if res := p.teach(pstest.Teach(0, 0, 10, 20, 0.1, 2, 3)); !res.Applied {
		t.Error("the lost range was not learnt again")
	}
	p.sameRows(p.settled())
}

func TestDeltasDiscardedMeanwhile(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1, 2, 3))
	w.save(w.checkpoint(1, 1, 0))
	p.teach(pstest.Teach(0, 0, 10, 20, 1, 4))
	p.settled()
	p.teach(pstest.Teach(0, 0, 20, 30, 1, 5))
	p.settled()
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	last, err := w.bus.Deltas().Last(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.bus.Deltas().(interface {
		Trim(context.Context, uint64) error
	}).Trim(soon(t), last); err != nil {
		t.Fatal(err)
	}
	p = w.start(w.config())
	if err := p.do(soon(t), func(ctx context.Context) error { return p.publish(ctx, func(int) bool { return true }) }); err != nil {
		t.Fatal(err)
	}
	published := map[int64]bool{}
	err = w.bus.Deltas().Follow(soon(t), last+1, mustLast(t, w), nil, func(m bus.StoredDelta) error {
		for _, r := range decoded(t, m).GetRows() {
			for _, id := range r.GetIds() {
				published[int64(id)] = true
			}
		}
		return nil
	})
	if err != nil || !published[1] || !published[2] || !published[3] {
		t.Errorf("published after the restart: %v, %v; want every row that was restored", published, err)
	}
}

func decoded(t testing.TB, m bus.StoredDelta) *delta.Delta {
	t.Helper()
	d := new(delta.Delta)
	if err := proto.Unmarshal(m.Data, d); err != nil {
		t.Fatal(err)
	}
	return d
}

func mustLast(t *testing.T, w *world) uint64 {
	t.Helper()
	n, err := w.bus.Deltas().Last(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTheSecondProcessWins(t *testing.T) {
	w := newWorld(t)
	first := w.start(w.config())
	first.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	first.settled()
	second := w.start(w.config())
	select {
	case <-first.done:
	case <-time.After(wait.Patience):
		t.Fatal("the fenced process runs on")
	}
	if err := first.stop(); !errors.Is(err, publish.ErrFenced) || !strings.Contains(err.Error(), "another process has taken this shard") {
		t.Errorf("the fenced process ended with %v", err)
	}
	if _, err := first.Apply(soon(t), pstest.Teach(0, 0, 10, 20, 1, 1)); rowwire.CodeOf(err) != rowwire.Unavailable {
		t.Errorf("the fenced process answered %v, want UNAVAILABLE", err)
	}
	if res := second.teach(pstest.Teach(0, 0, 0, 10, 1, 5)); !res.Applied {
		t.Error("the successor starts empty, but knows the range")
	}
	second.sameRows(second.settled())
}

// TestAFencedWriterCannotPublish keeps the first process from seeing its successor on
// the control plane before it publishes: the sequence that its deltas expect must stop it.
func TestAFencedWriterCannotPublish(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.SyncInterval = time.Hour
	first := w.start(cfg)
	first.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	rival := publish.New(publish.Config{BZID: bzid, Job: job, Shards: 1, Spec: pstest.Counting(), DenseRate: 1}, w.bus.Deltas(), first.tracer, nil)
	rival.Begin(2, nil)
	draft, err := rival.Takeover(rival.Subjects()[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	draft.Expect = bus.Any
	if _, err := w.bus.Deltas().Publish(soon(t), draft); err != nil {
		t.Fatal(err)
	}
	before := mustLast(t, w)
	err = first.do(soon(t), func(ctx context.Context) error {
		w.append("shard", shard.Aggregate(job, 0), &shard.Event{Body: &shard.Event_Ready{Ready: &shard.Ready{Job: job, Shards: 1, Epoch: 2, RowsAddress: "127.0.0.1:1"}}})
		return first.publish(ctx, func(int) bool { return true })
	})
	if !errors.Is(err, publish.ErrFenced) {
		t.Errorf("publish behind a successor: %v, want publish.ErrFenced", err)
	}
	<-first.done
	if after := mustLast(t, w); after != before {
		t.Errorf("the fenced writer stored %d deltas", after-before)
	}
}

// TestAStrangersDeltasEndNoShard: whatever anybody puts on a shard's subjects, the shard
// goes on, makes checkpoints and starts again; nothing of it is taken for its own.
func TestAStrangersDeltasEndNoShard(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1, 2))
	p.settled()
	rows := bus.DeltaSubject(bzid, job, "0")
	strange := map[string]*delta.Delta{
		"the greatest epoch":         {Job: job, Shards: 1, Epoch: math.MaxUint64, Chunks: 1},
		"a takeover of nobody":       {Job: job, Shards: 1, Epoch: 7, Chunks: 1, Takeover: true},
		"another job":                {Job: "other", Shards: 1, Epoch: 1, Chunks: 1},
		"another shard":              {Job: job, Shard: 3, Shards: 4, Epoch: 1, Chunks: 1},
		"an assignment that is none": {Job: job, Shards: 1, Epoch: 1, Chunks: 1, Assigned: &delta.Assigned{RequestId: "x"}, Rows: []*delta.Rows{{Table: "user", Dim: 9, Ids: []uint64{1}, Values: []byte{1}}}},
		"one to another's row":       {Job: job, Shards: 1, Epoch: 9, Chunks: 1, Assigned: &delta.Assigned{RequestId: "y"}, Rows: []*delta.Rows{{Table: "user", Dim: 2, Ids: []uint64{1}, Values: make([]byte, 8)}}},
		"nothing":                    nil,
	}
	at, id := int64(10), int64(1)
	for name, d := range strange {
		for _, subject := range []string{rows, rows + ".dense"} {
			data, err := proto.Marshal(d)
			if d == nil {
				data, err = []byte("garbage"), nil
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.bus.Deltas().Publish(soon(t), bus.DeltaDraft{Subject: subject, ID: name + subject, Data: data, Expect: bus.Any}); err != nil {
				t.Fatal(err)
			}
		}
		p.teach(pstest.Teach(0, 0, at, at+10, 1, 1, 3))
		at += 10
		err := p.do(soon(t), func(ctx context.Context) error { return p.publish(ctx, func(int) bool { return true }) })
		if err != nil {
			t.Fatalf("%s: publish: %v", name, err)
		}
		if id%2 == 0 { // else it is read again from the deltas
			w.save(w.checkpoint(1, id, 0))
		}
		id++
		want := p.user(1, 2, 3)
		if err := p.stop(); err != nil {
			t.Fatalf("%s: the shard ended with %v", name, err)
		}
		p = w.start(w.config())
		at = p.st.Standing().Next[0]
		if id%2 == 1 && !slices.Equal(p.user(1, 2, 3), want) {
			t.Errorf("%s: rows are %v, were %v", name, p.user(1, 2, 3), want)
		}
	}
}

func TestARivalThatStartsAtTheSameTimeLoses(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	servers := make([]*Server, len(errs))
	for i := range errs {
		servers[i] = w.server(w.config())
		wg.Go(func() { errs[i] = servers[i].Run(ctx) })
	}
	// Of the four all but the last to take the shard end by themselves.
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	ready := make(chan struct{}, len(servers))
	for _, s := range servers {
		go func() {
			select {
			case <-s.Ready():
				ready <- struct{}{}
			case <-ended:
			}
		}()
	}
	select {
	case <-ready:
	case <-ended:
		t.Fatal("all four processes ended")
	case <-time.After(wait.Patience):
		t.Fatal("no process became ready")
	}
	cancel()
	<-ended
	epochs := w.epochs()
	for i, e := range epochs {
		if e != uint64(i+1) {
			t.Errorf("epochs %v: each is taken once", epochs)
			break
		}
	}
	for i, err := range errs {
		if err != nil && !errors.Is(err, publish.ErrFenced) {
			t.Errorf("process %d ended with %v", i, err)
		}
	}
}

// epochs lists those of the shard's Ready facts.
func (w *world) epochs() (out []uint64) {
	w.t.Helper()
	last, err := w.bus.Log().Last(soon(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	err = w.bus.Log().Follow(soon(w.t), 1, last, func(r events.Recorded) error {
		if e, ok := r.Event.(*shard.Event); ok && e.GetReady() != nil {
			out = append(out, e.GetReady().GetEpoch())
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// TestNothingTouchedIsLost breaks publishing before and after the bus has stored.
func TestNothingTouchedIsLost(t *testing.T) {
	w := newWorld(t)
	h := &hooks{Bus: w.bus}
	w.bus = h
	p := w.start(w.config())
	p.settled() // the untrained variables
	calls := make(chan string, 100)
	n := 0
	h.set(func(next func() (uint64, error), drafts []bus.DeltaDraft) (uint64, error) {
		n++
		calls <- drafts[0].ID
		switch {
		case n <= 2: // never arrived
			return 0, bus.ErrUnavailable
		case n == 3: // stored, the answer lost
			if _, err := next(); err != nil {
				return 0, err
			}
			return 0, bus.ErrUnavailable
		}
		return next()
	})
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1, 2))
	first := <-calls
	p.teach(pstest.Teach(0, 0, 10, 20, 1, 2, 3)) // while the bus is away
	for range 3 {
		if again := <-calls; again != first {
			t.Errorf("sent again as %s, first as %s", again, first)
		}
	}
	f := p.settled()
	p.sameRows(f)
	ids := map[string]int{}
	for _, r := range f.ranges {
		ids[r.String()]++
		if ids[r.String()] > 1 {
			t.Errorf("range %v was published twice", r)
		}
	}
	if len(ids) != 2 {
		t.Errorf("ranges %v, want the two that were learnt", ids)
	}
}

func TestDamagedCheckpoints(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	w.save(w.checkpoint(1, 1, 0))
	p.teach(pstest.Teach(0, 0, 10, 20, 1, 1))
	w.save(w.checkpoint(1, 2, 0))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(w.dir, "model.ckpt-2")); err != nil {
		t.Fatal(err)
	}
	p = w.start(w.config())
	if o, err := p.Offsets(soon(t), &rowwire.OffsetsRequest{Job: job}); err != nil || o.Next[0] != 10 {
		t.Errorf("with the newest checkpoint gone: %+v, %v; want the one before", o, err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(w.dir, "model.ckpt-1", "ps_0", "manifest.json")
	b, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(manifest, b, 0o644); err != nil {
		t.Fatal(err)
	}
	err = w.server(w.config()).Run(soon(t))
	if err == nil || !strings.Contains(err.Error(), "must not start empty") {
		t.Errorf("with every checkpoint damaged Run ended with %v", err)
	}
}

// A shard that was never ready has no epoch to end: its failure is no fact of it.
func TestAShardThatWasNeverReadySaysNothing(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	c := w.checkpoint(1, 1, 0)
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	other := newWorld(t) // where the checkpoint's files are not, and no shard ever was
	c.Dir = other.dir
	other.save(c)
	if err := other.server(other.config()).Run(soon(t)); err == nil || !strings.Contains(err.Error(), "must not start empty") {
		t.Errorf("without the checkpoint Run ended with %v", err)
	}
	if said := other.failures(); len(said) > 0 {
		t.Errorf("the shard says %q", said)
	}
}

func TestWaitsForTheModel(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.Model = "later"
	s := w.server(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.catalog.Ready()
	select {
	case <-s.Ready():
		t.Error("ready without a model")
	default:
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v after a stop while waiting", err)
	}
}
