package cut

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// jobOn is a job whose n shards answer commands on b.
func jobOn(t *testing.T, b bus.Bus, n int, log *trainertest.Lines) Job {
	t.Helper()
	fleet := follow.New(b.Log(), registry.Fleet.Only(trainertest.BZID), follow.Options{})
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- fleet.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ran })
	<-fleet.Ready()
	return Job{
		Bus: b, BZID: trainertest.BZID, Name: trainertest.Job, Dir: t.TempDir(), Shards: shards.New(trainertest.Job, n, fleet, nil, nil, nil),
		Generation: func(int) uint64 { return 0 }, Log: log.Logger(),
		Variables: func(context.Context, uint64, uint64) ([][]float32, error) { return nil, nil },
	}
}

func newBus(t *testing.T) bus.Bus {
	b := mem.New()
	t.Cleanup(func() { b.Close() })
	return b
}

// cutCase is where shards stand, and what cut comes of it.
type cutCase struct {
	at      []int64
	inOrder bool
	change  func(shards []*trainertest.Scripted)
	says    string // of the error; empty: there is a cut
	offset  int64
	syncSeq uint64
	least   time.Duration
}

// Which cut comes of where the shards stand, and why there is none.
func TestCuts(t *testing.T) {
	type shards = []*trainertest.Scripted
	soon := func(after int) func(map[int32]int64, int) map[int32]int64 {
		return func(targets map[int32]int64, n int) map[int32]int64 {
			if n < after {
				return map[int32]int64{0: 3}
			}
			return maps.Clone(targets)
		}
	}
	for name, tc := range map[string]cutCase{
		"level":                 {[]int64{5, 5}, false, func(shards) {}, "", 5, 3, 0},
		"the first lacks some":  {[]int64{3, 5}, false, func(s shards) { s[0].Reaches = soon(2) }, "", 5, 3, time.Millisecond},
		"the last lacks some":   {[]int64{5, 3}, false, func(s shards) { s[1].Reaches = soon(4) }, "", 5, 3, 7 * time.Millisecond},
		"the middle lacks some": {[]int64{5, 3, 5}, false, func(s shards) { s[1].Reaches = soon(2) }, "", 5, 3, time.Millisecond},
		"one never gets there":  {[]int64{5, 3}, false, func(shards) {}, "shard 1 stands at map[0:3], the cut is at map[0:5]: the shards did not reach one offset in time", 0, 0, advanceTimeout},
		"one goes beyond": {[]int64{5, 4}, false, func(s shards) {
			s[1].Reaches = func(map[int32]int64, int) map[int32]int64 { return map[int32]int64{0: 6} }
		}, "shard 1 is at offset 6 of partition 0, above the cut at 5", 0, 0, 0},
		"one in another turn":   {[]int64{5, 5}, false, func(s shards) { s[1].State.Turn = 4 }, "", 5, 3, 0},
		"of the order of turns": {[]int64{5, 5}, true, func(s shards) { s[1].State.Turn = 4 }, "shard 1 stands at turn 4 of generation 0, shard 0 at turn 0 of 0", 0, 0, 0},
		"in another generation": {[]int64{5, 5}, true, func(s shards) { s[1].State.Generation = 2 }, "shard 1 stands at turn 0 of generation 2", 0, 0, 0},
		"in one order": {[]int64{5, 5}, true, func(s shards) {
			s[0].State.Turn, s[1].State.Turn = 4, 4
			s[0].State.Generation, s[1].State.Generation = 2, 2
		}, "", 5, 3, 0},
		"one writes for another":                    {[]int64{5, 5}, false, func(s shards) { s[1].As = 0 }, "snapshot of shard 1: it answered for shard 0", 0, 0, 0},
		"the first lets go":                         {[]int64{5, 5}, false, func(s shards) { s[0].LetsGo, s[0].Sync, s[1].Sync = true, 2, 1 }, "", 5, 1, 0},
		"the last lets go":                          {[]int64{5, 5}, false, func(s shards) { s[1].LetsGo, s[0].Sync, s[1].Sync = true, 1, 2 }, "", 5, 1, 0},
		"one whose last delta is beyond the stream": {[]int64{5, 5}, false, func(s shards) { s[1].LetsGo = true }, "", 5, 3, 0},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, tc.run) })
	}
}

func (tc *cutCase) run(t *testing.T) {
	b := newBus(t)
	all := trainertest.Shards(t, b, tc.at...)
	tc.change(all)
	for range 3 {
		if _, err := b.Deltas().Publish(t.Context(), bus.DeltaDraft{Subject: bus.DeltaSubject(trainertest.BZID, trainertest.Job, "0"), Expect: bus.Any, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	log := &trainertest.Lines{}
	c := &Cutter{Job: jobOn(t, b, len(tc.at), log), Name: "cut", Chief: 1}
	c.Job.Deterministic = tc.inOrder
	claimed := 0
	begin := time.Now()
	made, err := c.Make(t.Context(), true, func(context.Context) (int64, error) { claimed++; return 7, nil })
	if took := time.Since(begin); took < tc.least || took > tc.least+100*time.Millisecond {
		t.Errorf("it took %v, want %v", took, tc.least)
	}
	for i, s := range all {
		if s.Released != 1 {
			t.Errorf("shard %d was released %d times", i, s.Released)
		}
	}
	if got := strings.Join(log.All(), ""); strings.Contains(got, "was not released") || strings.Contains(got, "let go before the end") != slices.ContainsFunc(all, func(s *trainertest.Scripted) bool { return s.LetsGo }) {
		t.Errorf("log %s", got)
	}
	if tc.says != "" {
		if err == nil || !strings.Contains(err.Error(), tc.says) || !strings.HasPrefix(tc.says, "snapshot") != errors.Is(err, errNotNow) {
			t.Errorf("%+v, %v; want %q", made, err, tc.says)
		}
		return
	}
	if err != nil || claimed != 1 || c.ID != 7 {
		t.Fatalf("claimed %d times as %d, %v", claimed, c.ID, err)
	}
	tc.check(t, c.Job.Dir, made, all)
}

// check fails unless the cut is as wanted, and each shard was asked for its part of it.
func (tc *cutCase) check(t *testing.T, dir string, made Cut, all []*trainertest.Scripted) {
	t.Helper()
	cp := made.Checkpoint
	if cp.GetOffsets()[0] != tc.offset || cp.GetId() != 7 || cp.GetDir() != dir || len(cp.GetShards()) != len(tc.at) || made.syncSeq != tc.syncSeq {
		t.Errorf("cut %+v, want offset %d and sequence %d", made, tc.offset, tc.syncSeq)
	}
	first := all[0].State
	if cp.GetTurn() != first.Turn || cp.GetGeneration() != first.Generation {
		t.Errorf("turn %d of generation %d, shard 0 stands at %d of %d", cp.GetTurn(), cp.GetGeneration(), first.Turn, first.Generation)
	}
	want := shardcmd.SnapshotRequest{Cut: "cut", Checkpoint: 7, Dir: dir, Export: true, Version: 7}
	if tc.inOrder {
		want.Turn, want.Generation = first.Turn, first.Generation
	}
	for i, s := range all {
		if s.Snapshot != want {
			t.Errorf("shard %d was asked for %+v, want %+v", i, s.Snapshot, want)
		}
	}
}

// A shard that was killed while it wrote gives no answer: the cut is over once it is back as
// another, and not before the other shard has written, so that nothing is written behind it.
func TestAShardThatIsKilledWhileItWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := newBus(t), &trainertest.Lines{}
		writing, written, dead := make(chan int, 2), make(chan struct{}), make(chan struct{})
		trainertest.Commands(t, b, 2, func(i int, endpoint string, _ []byte) (any, error) {
			if endpoint == shardcmd.Snapshot {
				writing <- i
				<-[]chan struct{}{written, dead}[i]
				return &training.ShardFile{Shard: uint32(i), Path: "p", Hash: "h"}, nil
			}
			return shardcmd.State{Next: map[int32]int64{0: 5}, Held: "cut"}, nil
		})
		t.Cleanup(func() { close(dead) })
		ready := func(index uint32, epoch uint64) {
			t.Helper()
			if _, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join(trainertest.BZID, "shard", shard.Aggregate(trainertest.Job, index)), Expect: bus.Any,
				Event: &shard.Event{Body: &shard.Event_Ready{Ready: &shard.Ready{Job: trainertest.Job, Shard: index, Shards: 2, Epoch: epoch, RowsAddress: "h:1"}}}}); err != nil {
				t.Fatal(err)
			}
		}
		ready(0, 1)
		ready(1, 1)
		c := &Cutter{Job: jobOn(t, b, 2, log), Name: "cut", Chief: 1}
		begin, ended := time.Now(), make(chan error, 1)
		go func() {
			_, err := c.Make(t.Context(), true, func(context.Context) (int64, error) { return 7, nil })
			ended <- err
		}()
		<-writing
		<-writing
		ready(1, 2)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it is over while shard 0 writes: %v", err)
		default:
		}
		close(written)
		err := <-ended
		if !errors.Is(err, shards.ErrMoved) || !Passes(err) || !strings.Contains(err.Error(), "snapshot of shard 1") {
			t.Errorf("the cut ended with %v", err)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("the chief waited %v for the shard that is gone", took)
		}
	})
}

// A cut that is never claimed writes nothing, and lets the shards go.
func TestACutThatIsNotClaimed(t *testing.T) {
	b, log := newBus(t), &trainertest.Lines{}
	shard := trainertest.Shards(t, b, 5)[0]
	c := &Cutter{Job: jobOn(t, b, 1, log), Name: "cut", Chief: 1}
	shard.Stuck = true
	full := errors.New("the log is full")
	_, err := c.Make(t.Context(), false, func(context.Context) (int64, error) { return 0, full })
	if !errors.Is(err, full) || shard.Released != 1 || shard.Snapshot.Cut != "" || c.ID != 0 {
		t.Errorf("%v; released %d times, snapshot %+v", err, shard.Released, shard.Snapshot)
	}
	if got := log.All(); len(got) != 1 || !strings.Contains(got[0], "was not released") {
		t.Errorf("log %q, the shard stays held", got)
	}
}

func TestWhatPassesByItself(t *testing.T) {
	for err, want := range map[error]bool{
		errNotNow: true, ErrTermEnded: true, bus.ErrUnavailable: true, fmt.Errorf("hold: %w", bus.Refuse(bus.CodeConflict, "x")): true,
		bus.Refuse(bus.CodeUnavailable, "x"): true, bus.Refuse(bus.CodeNotFound, "x"): true,
		bus.Refuse(bus.CodeInvalid, "x"): false, bus.Refuse(bus.CodeInternal, "x"): false, errors.New("no space left"): false,
		fmt.Errorf("%w: %w", errNotNow, bus.Refuse(bus.CodeInternal, "x")): false,
	} {
		if Passes(err) != want {
			t.Errorf("%v passes: %v", err, !want)
		}
	}
}

// The entry of an export is made of what all shards wrote, all of it of this cut.
func TestEntryOfACut(t *testing.T) {
	job := jobOn(t, newBus(t), 2, &trainertest.Lines{})
	m, err := runtime.New(trainertest.SmallSpec(), 2, 16)
	if err != nil {
		t.Fatal(err)
	}
	part := func(shard uint32) *training.ShardFile {
		return &training.ShardFile{Shard: shard, Exported: &training.ExportedPart{Export: fmt.Sprint("of shard ", shard), Bytes: 7}}
	}
	var variables [][]float32
	for _, v := range m.Variables() {
		variables = append(variables, modelspec.InitVariable(trainertest.SmallSpec(), v))
	}
	made := func(files ...*training.ShardFile) Cut {
		return Cut{Checkpoint: &training.Checkpoint{Id: 7, Dir: job.Dir, Shards: files}, syncSeq: 9, variables: variables}
	}
	c := &Cutter{Job: job, ID: 7}
	e, err := c.Entry(made(part(0), part(1)), m, nil)
	if err != nil || e.GetVersion() != 7 || e.GetSyncSeq() != 9 || e.GetModelDir() != filepath.Join(job.Dir, ExportsDir) || !slices.Equal(e.GetSubModels(), []string{"entry", "ps_0", "ps_1"}) {
		t.Errorf("%v, %v", e, err)
	}
	entry, err := checkpoint.ReadEntry(filepath.Join(job.Dir, ExportsDir, "entry", "7"))
	if err != nil || len(entry.Dense) != len(m.Variables()) || entry.SyncSeq != 9 || entry.Shards != 2 {
		t.Errorf("entry %+v, %v", entry, err)
	}
	identity, size, err := checkpoint.Written(filepath.Join(job.Dir, ExportsDir, "entry", "7"))
	if p := e.GetParts(); err != nil || len(p) != 3 || p["entry"].GetExport() != identity || p["entry"].GetBytes() != size || len(identity) != 64 || size == 0 ||
		p["ps_0"].GetExport() != "of shard 0" || p["ps_1"].GetExport() != "of shard 1" {
		t.Errorf("the fact tells of %v, the entry is %s of %d bytes, %v", p, identity, size, err)
	}
	older := &training.ShardFile{Shard: 1}
	if e, err := c.Entry(made(part(0), older), m, nil); err != nil || len(e.GetParts()) != 2 {
		t.Errorf("beside a shard that does not say what it exported: %v, %v", e.GetParts(), err)
	}
	for i, v := range m.Variables() {
		whole := variables[i]
		if !slices.Equal(entry.Dense[v.Name].Values, whole) {
			t.Errorf("the entry has %v as %s", entry.Dense[v.Name].Values, v.Name)
		}
		variables[i] = whole[1:]
		if _, err := c.Entry(made(part(0), part(1)), m, nil); err == nil || !strings.Contains(err.Error(), v.Name) {
			t.Errorf("without all of %s: %v", v.Name, err)
		}
		variables[i] = whole
	}
	variables = nil
	if _, err := c.Entry(made(part(0), part(1)), m, nil); err == nil {
		t.Error("an entry without variables is written")
	}
}
