package ps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/ps/pstest"
	"github.com/monolith-go/monolith/services/ps/publish"
	"github.com/monolith-go/monolith/services/ps/state"
)

// seeing is a view that has come to a state.
func seeing[S any](t *testing.T, s S) *follow.Follower[S] {
	t.Helper()
	b := mem.New()
	f := follow.New(b.Log(), follow.View[S]{
		Name: "seen", Version: 1, New: func() S { return s }, Fold: func(s S, _ events.Recorded) S { return s },
	}, follow.Options{})
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- f.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ran; b.Close() })
	<-f.Ready()
	return f
}

// inFleet is a shard 0 of three, in generation 5 from checkpoint 7, that sees the facts of itself and of others.
func inFleet(t *testing.T, deterministic bool, seen map[uint32]*shard.Ready) *Server {
	t.Helper()
	f := fleet.New()
	f.Shards[job] = map[uint32]fleet.Shard{}
	for i, r := range seen {
		f.Shards[job][i] = fleet.Shard{Ready: events.JSON[*shard.Ready]{V: r}, Seq: uint64(i) + 20}
	}
	return &Server{
		cfg: Config{Job: job, Shards: 3, Deterministic: deterministic}, fleet: seeing(t, f),
		ready0: &shard.Ready{Epoch: 4, Generation: 5, Checkpoint: 7}, restored: lineage.Restored{Seq: 10},
	}
}

// A newer epoch of a shard ends the process that has it; in a deterministic job a shard that has gone on to another
// generation takes the others along, as soon as it has returned to where the job has.
func TestWhatEndsATimeline(t *testing.T) {
	at := func(epoch, generation, restored uint64, checkpoint int64) *shard.Ready {
		return &shard.Ready{Epoch: epoch, Generation: generation, Restored: restored, Checkpoint: checkpoint}
	}
	for name, tc := range map[string]struct {
		seen   map[uint32]*shard.Ready
		fenced bool
		to     target // generation 0: nowhere
	}{
		"nobody":                          {nil, false, target{}},
		"itself":                          {map[uint32]*shard.Ready{0: at(4, 5, 10, 7)}, false, target{}},
		"an older epoch":                  {map[uint32]*shard.Ready{0: at(3, 9, 10, 9)}, false, target{}},
		"a newer epoch":                   {map[uint32]*shard.Ready{0: at(5, 5, 10, 7)}, true, target{}},
		"one that was never ready":        {map[uint32]*shard.Ready{1: nil}, false, target{}},
		"another in the same generation":  {map[uint32]*shard.Ready{1: at(9, 5, 10, 7)}, false, target{}},
		"another in an older generation":  {map[uint32]*shard.Ready{1: at(9, 4, 10, 9)}, false, target{}},
		"another in a later one":          {map[uint32]*shard.Ready{1: at(1, 6, 10, 3)}, false, target{checkpoint: 3, generation: 6}},
		"two in later ones":               {map[uint32]*shard.Ready{1: at(1, 6, 11, 3), 2: at(1, 7, 10, 4)}, false, target{checkpoint: 4, generation: 7}},
		"one that is yet to return":       {map[uint32]*shard.Ready{1: at(1, 6, 9, 3)}, false, target{}},
		"rolled back to a newer cut":      {map[uint32]*shard.Ready{1: at(1, 5, 10, 8)}, false, target{checkpoint: anyCheckpoint, generation: 6}},
		"both rolled back to newer cuts":  {map[uint32]*shard.Ready{1: at(1, 5, 10, 8), 2: at(1, 5, 10, 9)}, false, target{checkpoint: anyCheckpoint, generation: 6}},
		"rolled back to an older cut":     {map[uint32]*shard.Ready{1: at(1, 5, 10, 6)}, false, target{}},
		"a newer cut of a generation old": {map[uint32]*shard.Ready{1: at(1, 4, 10, 8)}, false, target{}},
	} {
		for _, deterministic := range []bool{true, false} {
			next, err := inFleet(t, deterministic, tc.seen).watch()
			if errors.Is(err, publish.ErrFenced) != tc.fenced || !tc.fenced && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			want := tc.to
			if !deterministic {
				want = target{}
			}
			got := target{}
			if next != nil {
				got = *next
			}
			if got.why = ""; got != want {
				t.Errorf("%s, deterministic %v: %+v, want %+v", name, deterministic, got, want)
			}
		}
	}
}

// A shard goes where its job has returned to, once, into a generation that none was in before.
func TestWhereAShardReturnsTo(t *testing.T) {
	for _, tc := range []struct {
		seq, to, least, want uint64 // of the job's return, its generation, the least that is asked for
		back                 bool
	}{{9, 9, 0, 0, false}, {10, 9, 0, 0, false}, {11, 3, 0, 6, true}, {11, 8, 0, 8, true}, {11, 3, 9, 9, true}} {
		for _, deterministic := range []bool{true, false} {
			s := inFleet(t, deterministic, nil)
			l := lineage.New()
			l.Jobs[job] = lineage.Job{Restored: lineage.Restored{Seq: tc.seq, Checkpoint: 4, Generation: tc.to}}
			s.lineage = seeing(t, l)
			want := tc.want
			if !deterministic {
				want = 0
			}
			got := s.returned(tc.least)
			if (got != nil) != tc.back || got.highest() != want || got != nil && (got.checkpoint != anyCheckpoint || !strings.Contains(got.why, "returned to checkpoint 4")) {
				t.Errorf("%+v, deterministic %v: %+v", tc, deterministic, got)
			}
		}
	}
}

// A process leaves where its job learns another declaration than it has read; a job that is stopped, or was begun
// before declarations had hashes, learns none.
func TestADeclarationThatIsAnother(t *testing.T) {
	for _, tc := range []struct {
		hash    string
		stopped bool
		leaves  bool
	}{{"mine", false, false}, {"another", false, true}, {"another", true, false}, {"", false, false}} {
		l := lineage.New()
		l.Jobs[job] = lineage.Job{Started: events.JSON[*training.JobStarted]{V: &training.JobStarted{SpecHash: tc.hash}}, Stopped: tc.stopped}
		s := &Server{cfg: Config{Job: job, Model: "m"}, specHash: "mine", lineage: seeing(t, l)}
		if err := s.declaredAnew(); (err != nil) != tc.leaves {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// What a process says when it takes its shard: in a deterministic job the generation that a roll-back names, the
// next one where turns were lost, and the job's where none can have been.
func TestTheGenerationThatIsTaken(t *testing.T) {
	for _, tc := range []struct{ asked, epoch, seen, want uint64 }{{9, 3, 5, 9}, {0, 3, 5, 6}, {0, 0, 5, 5}, {0, 0, 0, 1}, {1, 0, 5, 1}} {
		for _, deterministic := range []bool{true, false} {
			st, err := state.New(state.Config{Job: job, Shards: 1}, pstest.Counting())
			if err != nil {
				t.Fatal(err)
			}
			s := &Server{cfg: Config{Job: job, Shards: 2, Deterministic: deterministic}, st: st}
			want := tc.want
			if !deterministic {
				want = tc.asked
			}
			if got := s.readyFact(seen{epoch: tc.epoch, generation: tc.seen}, tc.asked); got.GetGeneration() != want || got.GetEpoch() != tc.epoch+1 {
				t.Errorf("%+v, deterministic %v: generation %d of epoch %d, want %d", tc, deterministic, got.GetGeneration(), got.GetEpoch(), want)
			}
		}
	}
}

// Deltas are of a writer of this shard or, after resharding, of any of its job.
func TestWhoseDeltasAreTaken(t *testing.T) {
	for _, tc := range []struct {
		job       string
		shard     uint32
		resharded bool
		own       bool
	}{{job, 0, false, true}, {job, 1, false, false}, {job, 1, true, true}, {"another", 0, true, false}, {"another", 0, false, false}} {
		s := inFleet(t, false, map[uint32]*shard.Ready{0: {Epoch: 4}, 1: {Epoch: 4}})
		s.resharded = tc.resharded
		if own, err := s.written(t.Context(), &delta.Delta{Job: tc.job, Shard: tc.shard, Epoch: 4}); err != nil || own != tc.own {
			t.Errorf("%+v: %v, %v", tc, own, err)
		}
	}
}

// partOf is what one shard wrote into a cut.
func partOf(i uint32) *checkpoint.Shard {
	return &checkpoint.Shard{
		Manifest: checkpoint.Manifest{
			Shard: i, Offsets: map[int32]int64{0: 5}, Turn: 3, Generation: 2, Step: 10 + uint64(i), SyncSeq: 20 - uint64(i),
			Assigned: []string{"all", fmt.Sprint("of ", i)}, Tables: []checkpoint.TableInfo{{Name: "movie"}, {Name: "user", Clock: 100 + i}},
		},
		Tables: map[string][]table.Row{"user": {{ID: int64(i)}}}, Dense: map[string]checkpoint.Variable{fmt.Sprint("v", i): {}},
		Bands: []checkpoint.Band{{Name: "w", At: int(i)}},
	}
}

// The parts of one cut are put together: all that any has, the newest of what counts up, the oldest sequence; parts of
// two cuts, or of two models, are not.
func TestPartsOfACutArePutTogether(t *testing.T) {
	a := partOf(0)
	for i := range uint32(2) {
		if err := merge(a, partOf(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	m := a.Manifest
	if m.Step != 12 || m.SyncSeq != 18 || !slices.Equal(m.Assigned, []string{"all", "of 0", "of 1", "of 2"}) || m.Tables[1].Clock != 102 || m.Tables[0].Clock != 0 {
		t.Errorf("%+v", m)
	}
	if len(a.Tables["user"]) != 3 || !slices.Equal(slices.Sorted(maps.Keys(a.Dense)), []string{"v0", "v1", "v2"}) || len(a.Bands) != 3 {
		t.Errorf("%d rows, variables %v, %d bands", len(a.Tables["user"]), a.Dense, len(a.Bands))
	}
	for name, change := range map[string]func(*checkpoint.Manifest){
		"other offsets": func(m *checkpoint.Manifest) { m.Offsets = map[int32]int64{0: 6} }, "another turn": func(m *checkpoint.Manifest) { m.Turn++ },
		"another generation": func(m *checkpoint.Manifest) { m.Generation++ }, "another table": func(m *checkpoint.Manifest) { m.Tables[0].Name = "x" },
	} {
		b := partOf(1)
		if change(&b.Manifest); merge(partOf(0), b) == nil {
			t.Errorf("%s: they are put together", name)
		}
	}
}

// A shard that nobody has asked yet has figures that JSON can hold.
func TestFiguresOfNoCalls(t *testing.T) {
	var none tally
	if b, err := json.Marshal(none.stats()); err != nil || none.stats().AvgLatencyUS != 0 {
		t.Errorf("%s, %v", b, err)
	}
	none.add(3*time.Millisecond, 5, nil)
	none.add(time.Millisecond, 5, errors.New("refused"))
	if got := none.stats(); got.Count != 2 || got.Failed != 1 || got.Rows != 5 || got.AvgLatencyUS != 2000 {
		t.Errorf("%+v", got)
	}
}
