package publish

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// flaky is a stream that is away for the next calls.
type flaky struct {
	bus.Deltas
	away int
}

func (f *flaky) Publish(ctx context.Context, d ...bus.DeltaDraft) (uint64, error) {
	if f.away > 0 {
		f.away--
		return 0, bus.ErrUnavailable
	}
	return f.Deltas.Publish(ctx, d...)
}

// stream is a publisher in its third epoch, and where it writes.
func stream(t *testing.T) (*Publisher, *flaky) {
	t.Helper()
	b := mem.New()
	t.Cleanup(func() { b.Close() })
	to := &flaky{Deltas: b.Deltas()}
	p := counted(to, func(context.Context) (uint64, error) { return 3, nil })
	p.Begin(3, map[string]uint64{})
	return p, to
}

// ends fails unless the stream ends there.
func (f *flaky) ends(t *testing.T, what string, want uint64) {
	t.Helper()
	if last, err := f.Last(t.Context()); err != nil || last != want {
		t.Errorf("%s: the stream ends at %d, %v; want %d", what, last, err, want)
	}
}

// touched is a row and a variable to publish.
func touched() *Dirty {
	return &Dirty{Epoch: 3, Rows: []Rows{{Table: "user", Dim: 1, IDs: []int64{7}, Values: []float32{1}, Format: whole}}, Dense: []*delta.Variable{{Name: "out/bias", Values: Floats([]float32{2})}}}
}

// What was collected is stored once, on both subjects; what may not be published is not; and while
// there is nothing to store the caller hears so. What a call could not store is stored by the next one,
// before anything else, though nothing was touched since.
func TestWhatIsCollectedIsStored(t *testing.T) {
	p, to := stream(t)
	publish := func(what string, h *Dirty, wrote bool, want error, end uint64) {
		t.Helper()
		got, err := p.Publish(t.Context(), func() *Dirty { return h })
		if got != wrote || !errors.Is(err, want) {
			t.Errorf("%s: wrote %v, %v; want %v, %v", what, got, err, wrote, want)
		}
		to.ends(t, what, end)
	}
	publish("nothing", nil, false, nil, 0)
	bad := touched()
	bad.Bad = errors.New("a row is no number")
	publish("what may not be", bad, false, bad.Bad, 0)
	publish("a row and a variable", touched(), true, nil, 2)
	if p.Seq() != 2 {
		t.Errorf("its last sequence is %d", p.Seq())
	}
	to.away = 1
	publish("while the stream is away", touched(), true, bus.ErrUnavailable, 2)
	to.away = 1
	asked := false
	if _, err := p.Publish(t.Context(), func() *Dirty { asked = true; return touched() }); asked || !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("more was collected (%v) before what is left over is stored: %v", asked, err)
	}
	publish("what was left over", nil, true, nil, 4)
	publish("nothing again", nil, false, nil, 4)
}

// The longer a publication fails the longer its next try waits; one that works ends that.
func TestTriesArePutOffFurther(t *testing.T) {
	p, to := stream(t)
	for i, want := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
		to.away = 1
		if _, err := p.Publish(t.Context(), touched); err == nil {
			t.Fatal("the stream is away")
		}
		if got := p.Delay(); got != want {
			t.Errorf("try %d is put off by %v, want %v", i, got, want)
		}
	}
	if _, err := p.Publish(t.Context(), func() *Dirty { return nil }); err != nil {
		t.Fatal(err)
	}
	if got := p.Delay(); got != 50*time.Millisecond {
		t.Errorf("after one that worked a try is put off by %v", got)
	}
}

// A change that is published by itself comes behind what was left over, and is made only once that is
// stored: its sequence is the caller's answer.
func TestAChangeByItself(t *testing.T) {
	p, to := stream(t)
	made := 0
	alone := func(d *delta.Delta, failed error) (uint64, error) {
		return p.Alone(t.Context(), func() (*delta.Delta, error) { made++; return d, failed })
	}
	if seq, err := alone(&delta.Delta{Epoch: 3}, nil); err != nil || seq != 1 {
		t.Errorf("stored at %d, %v", seq, err)
	}
	if seq, err := alone(nil, nil); err != nil || seq != 0 {
		t.Errorf("a change that was known: %d, %v", seq, err)
	}
	refused := errors.New("no such table")
	if seq, err := alone(&delta.Delta{}, refused); !errors.Is(err, refused) || seq != 0 {
		t.Errorf("a change that is refused: %d, %v", seq, err)
	}
	to.ends(t, "one change", 1)
	to.away = 1
	if seq, err := alone(&delta.Delta{Epoch: 3, Step: 1}, nil); !errors.Is(err, bus.ErrUnavailable) || seq != 0 {
		t.Errorf("while the stream is away: %d, %v", seq, err)
	}
	to.away = 1
	if _, err := alone(&delta.Delta{Epoch: 3, Step: 2}, nil); !errors.Is(err, bus.ErrUnavailable) || made != 4 {
		t.Errorf("behind one that is left over: %v, %d changes were made", err, made)
	}
	if seq, err := alone(&delta.Delta{Epoch: 3, Step: 3}, nil); err != nil || seq != 3 {
		t.Errorf("behind what was left over: %d, %v", seq, err)
	}
}

// A stream that refuses the sequence which it says holds is asked again later, not at once and for ever.
func TestAnExpectationThatHoldsAndIsRefused(t *testing.T) {
	d := &stubborn{forgetful: forgetful{last: 40}}
	p := counted(d, func(context.Context) (uint64, error) { return 3, nil })
	p.Begin(3, map[string]uint64{p.rows: 40})
	p.queue = [][]bus.DeltaDraft{{{Subject: p.rows, Data: []byte("x")}}}
	if err := p.send(t.Context()); !bus.Retryable(err) || !strings.Contains(err.Error(), "holds and is refused") || d.asked != 1 || len(p.queue) != 1 {
		t.Errorf("%v after %d calls, %d groups are left", err, d.asked, len(p.queue))
	}
}

// stubborn refuses a few calls, whatever they expect.
type stubborn struct {
	forgetful
	asked int
}

func (s *stubborn) Publish(ctx context.Context, d ...bus.DeltaDraft) (uint64, error) {
	if s.asked++; s.asked < 4 {
		return 0, bus.ErrConflict
	}
	return s.forgetful.Publish(ctx, d...)
}

// Only a shard that has dense variables writes their subject.
func TestSubjectsOfAShard(t *testing.T) {
	spec := pstest.Counting()
	const shards = 8
	without := 0
	for i := range shards {
		want := 2
		if len(modelspec.BandsOf(modelspec.Variables(spec), i, shards)) == 0 {
			want, without = 1, without+1
		}
		p := New(Config{BZID: pstest.BZID, Job: pstest.Job, Shard: i, Shards: shards, Spec: spec, DenseRate: 1}, nil, nil, nil)
		if got := p.Subjects(); len(got) != want {
			t.Errorf("shard %d writes %q", i, got)
		}
	}
	if without == 0 || without == shards {
		t.Errorf("%d of %d shards are without variables", without, shards)
	}
}

// Variables are due as soon as their pause is over.
func TestVariablesAreDueAtTheirPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Publisher{pause: time.Second, denseAt: time.Now()}
		due := p.Due(1)
		time.Sleep(time.Second - 1)
		if due(1) {
			t.Error("they are due before their pause is over")
		}
		if time.Sleep(time.Nanosecond); !due(1) {
			t.Error("they are not due at the end of their pause")
		}
	})
}

// The rows of a table, and those that it has no more, stand together in a chunk and apart from another
// table's.
func TestTablesInAChunk(t *testing.T) {
	ds := own.rowDeltas(&Dirty{Rows: []Rows{
		{Table: "user", Dim: 1, IDs: []int64{1, 2}, Values: []float32{1, 2}, Removed: []int64{3}, Format: whole},
		{Table: "movie", Dim: 1, IDs: []int64{4}, Values: []float32{4}, Removed: []int64{5, 6}, Format: whole},
	}})
	if len(ds) != 1 || len(ds[0].GetRows()) != 2 {
		t.Fatalf("%d chunks: %v", len(ds), ds)
	}
	for i, want := range []*delta.Rows{
		{Table: "user", Dim: 1, Ids: []uint64{1, 2}, Removed: []uint64{3}, Values: Floats([]float32{1, 2})},
		{Table: "movie", Dim: 1, Ids: []uint64{4}, Removed: []uint64{5, 6}, Values: Floats([]float32{4})},
	} {
		if !proto.Equal(ds[0].GetRows()[i], want) {
			t.Errorf("%v, want %v", ds[0].GetRows()[i], want)
		}
	}
}

// A chunk is filled to its last byte: 256 for each table's name, and what its rows take.
func TestChunksAreFullOfTwoTables(t *testing.T) {
	const rows = 100
	const most = (chunkBytes - 2*256 - rows*(8+2*4)) / 8
	for removed, want := range map[int]int{most: 1, most + 1: 2} {
		ds := own.rowDeltas(&Dirty{Rows: []Rows{
			{Table: "user", Dim: 2, IDs: make([]int64, rows), Values: make([]float32, 2*rows), Format: whole},
			{Table: "movie", Dim: 2, Removed: make([]int64, removed), Format: whole},
		}})
		if len(ds) != want {
			t.Errorf("%d rows and %d removed ones are %d chunks, want %d", rows, removed, len(ds), want)
		}
	}
}

// One call stores as many deltas as its bound allows, to the byte.
func TestGroupsAreFull(t *testing.T) {
	const each = groupBytes / 16
	d := &delta.Delta{Dense: []*delta.Variable{{Values: make([]byte, each)}}}
	d.Dense[0].Values = d.Dense[0].Values[proto.Size(d)-each:]
	if got := proto.Size(d); got != each {
		t.Fatalf("a delta of %d bytes, not of %d", got, each)
	}
	for n, want := range map[int]int{16: 1, 17: 2} {
		ds := make([]*delta.Delta, n)
		for i := range ds {
			ds[i] = d
		}
		if groups, err := drafts("s", "id", "", ds); err != nil || len(groups) != want {
			t.Errorf("%d deltas of a sixteenth are %d groups, %v; want %d", n, len(groups), err, want)
		}
	}
}
