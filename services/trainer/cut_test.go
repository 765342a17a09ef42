package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/projections/lineage"
)

// commands has n shards answer the commands of a cut as told, and no rows.
func (w *world) commands(n int, do func(shard int, endpoint string, payload []byte) (any, error)) {
	w.t.Helper()
	for i := range n {
		endpoints := map[string]bus.Handler{}
		for _, e := range []string{shardcmd.Offsets, shardcmd.Hold, shardcmd.Advance, shardcmd.Snapshot, shardcmd.Release, shardcmd.Rollback} {
			endpoints[e] = func(_ context.Context, payload []byte) ([]byte, error) {
				reply, err := do(i, e, payload)
				if err != nil {
					return nil, err
				}
				if f, ok := reply.(*training.ShardFile); ok {
					return protojson.Marshal(f)
				}
				return json.Marshal(reply)
			}
		}
		stop, err := w.b.Commands().Serve(w.t.Context(), bus.Service{BZID: bzid, Name: shardcmd.Service(theJob, i), Version: "1.0.0", Description: "scripted", Endpoints: endpoints})
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(stop)
	}
}

// scripted is a shard that takes part in cuts and has no rows.
type scripted struct {
	mu       sync.Mutex
	state    shardcmd.State
	reaches  func(targets map[int32]int64, n int) map[int32]int64 // where it stands after n advances; nil: where it stood
	advances int
	letsGo   bool   // before the end of the cut
	as       uint32 // the shard that it says it is
	sync     uint64
	snapshot shardcmd.SnapshotRequest // the last one
	// snapshotted is called before a snapshot is answered.
	snapshotted func()
	released    int
	stuck       bool // it cannot be released
}

// scripted serves shards that stand at these offsets of partition 0.
func (w *world) scripted(at ...int64) *scripted { return w.scriptedAll(at...)[0] }

func (w *world) scriptedAll(at ...int64) []*scripted {
	w.t.Helper()
	var all []*scripted
	for i, next := range at {
		all = append(all, &scripted{state: shardcmd.State{Next: map[int32]int64{0: next}}, as: uint32(i), sync: uint64(100 + i)})
	}
	w.commands(len(at), func(i int, endpoint string, payload []byte) (any, error) { return all[i].command(endpoint, payload) })
	return all
}

func (s *scripted) command(endpoint string, payload []byte) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var cut struct{ Cut string }
	if err := json.Unmarshal(payload, &cut); err != nil {
		return nil, err
	}
	switch endpoint {
	case shardcmd.Hold:
		s.state.Held = cut.Cut
	case shardcmd.Advance:
		var r shardcmd.AdvanceRequest
		if err := json.Unmarshal(payload, &r); err != nil {
			return nil, err
		}
		if s.advances++; s.reaches != nil {
			s.state.Next = s.reaches(r.Targets, s.advances)
		}
	case shardcmd.Snapshot:
		if err := json.Unmarshal(payload, &s.snapshot); err != nil {
			return nil, err
		}
		if s.snapshotted != nil {
			s.snapshotted()
		}
		if s.letsGo {
			s.state.Held = ""
		}
		return &training.ShardFile{Shard: s.as, Path: "p", Hash: "h", SyncSeq: s.sync}, nil
	case shardcmd.Release:
		if s.released++; s.stuck {
			return nil, bus.Refuse(bus.CodeInternal, "stuck")
		}
		s.state.Held = ""
	}
	return s.state, nil
}

// Which cut comes of where the shards stand, and why there is none.
func TestCuts(t *testing.T) {
	type shards = []*scripted
	soon := func(after int) func(map[int32]int64, int) map[int32]int64 {
		return func(targets map[int32]int64, n int) map[int32]int64 {
			if n < after {
				return map[int32]int64{0: 3}
			}
			return maps.Clone(targets)
		}
	}
	for name, tc := range map[string]struct {
		at      []int64
		inOrder bool
		change  func(shards)
		says    string // of the error; empty: there is a cut
		offset  int64
		syncSeq uint64
		least   time.Duration
	}{
		"level":                 {[]int64{5, 5}, false, func(shards) {}, "", 5, 3, 0},
		"the first lacks some":  {[]int64{3, 5}, false, func(s shards) { s[0].reaches = soon(1) }, "", 5, 3, 0},
		"the last lacks some":   {[]int64{5, 3}, false, func(s shards) { s[1].reaches = soon(4) }, "", 5, 3, 7 * time.Millisecond},
		"the middle lacks some": {[]int64{5, 3, 5}, false, func(s shards) { s[1].reaches = soon(2) }, "", 5, 3, time.Millisecond},
		"one never gets there":  {[]int64{5, 3}, false, func(shards) {}, "shard 1 stands at map[0:3], the cut is at map[0:5]: the shards did not reach one offset in time", 0, 0, advanceTimeout},
		"one goes beyond": {[]int64{5, 4}, false, func(s shards) {
			s[1].reaches = func(map[int32]int64, int) map[int32]int64 { return map[int32]int64{0: 6} }
		}, "shard 1 is at offset 6 of partition 0, above the cut at 5", 0, 0, 0},
		"one in another turn":   {[]int64{5, 5}, false, func(s shards) { s[1].state.Turn = 4 }, "", 5, 3, 0},
		"of the order of turns": {[]int64{5, 5}, true, func(s shards) { s[1].state.Turn = 4 }, "shard 1 stands at turn 4 of generation 0, shard 0 at turn 0 of 0", 0, 0, 0},
		"in another generation": {[]int64{5, 5}, true, func(s shards) { s[1].state.Generation = 2 }, "shard 1 stands at turn 0 of generation 2", 0, 0, 0},
		"in one order": {[]int64{5, 5}, true, func(s shards) {
			s[0].state.Turn, s[1].state.Turn = 4, 4
			s[0].state.Generation, s[1].state.Generation = 2, 2
		}, "", 5, 3, 0},
		"one writes for another":                    {[]int64{5, 5}, false, func(s shards) { s[1].as = 0 }, "snapshot of shard 1: it answered for shard 0", 0, 0, 0},
		"the first lets go":                         {[]int64{5, 5}, false, func(s shards) { s[0].letsGo, s[0].sync, s[1].sync = true, 2, 1 }, "", 5, 1, 0},
		"the last lets go":                          {[]int64{5, 5}, false, func(s shards) { s[1].letsGo, s[0].sync, s[1].sync = true, 1, 2 }, "", 5, 1, 0},
		"one whose last delta is beyond the stream": {[]int64{5, 5}, false, func(s shards) { s[1].letsGo = true }, "", 5, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := busOnly(t)
				all := w.scriptedAll(tc.at...)
				tc.change(all)
				for range 3 {
					if _, err := w.b.Deltas().Publish(t.Context(), bus.DeltaDraft{Subject: bus.DeltaSubject(bzid, theJob, "0"), Expect: bus.Any, Data: []byte("x")}); err != nil {
						t.Fatal(err)
					}
				}
				cfg := w.alone()
				cfg.Shards, cfg.Deterministic = len(tc.at), tc.inOrder
				c := &cutter{s: w.view(cfg), name: "cut", chief: 1}
				log := &lines{}
				c.s.log = log.logger()
				claimed := 0
				begin := time.Now()
				made, err := c.make(t.Context(), true, func(context.Context) (int64, error) { claimed++; return 7, nil })
				if took := time.Since(begin); took < tc.least || took > tc.least+100*time.Millisecond {
					t.Errorf("it took %v, want %v", took, tc.least)
				}
				for i, s := range all {
					if s.released != 1 {
						t.Errorf("shard %d was released %d times", i, s.released)
					}
				}
				if got := strings.Join(log.all(), ""); strings.Contains(got, "was not released") || strings.Contains(got, "let go before the end") != slices.ContainsFunc(all, func(s *scripted) bool { return s.letsGo }) {
					t.Errorf("log %s", got)
				}
				if tc.says != "" {
					if err == nil || !strings.Contains(err.Error(), tc.says) || !strings.HasPrefix(tc.says, "snapshot") != errors.Is(err, errNotNow) {
						t.Errorf("%+v, %v; want %q", made, err, tc.says)
					}
					return
				}
				if err != nil || claimed != 1 || c.id != 7 {
					t.Fatalf("claimed %d times as %d, %v", claimed, c.id, err)
				}
				cp := made.checkpoint
				if cp.GetOffsets()[0] != tc.offset || cp.GetId() != 7 || cp.GetDir() != w.dir || len(cp.GetShards()) != len(tc.at) || made.syncSeq != tc.syncSeq {
					t.Errorf("cut %+v, want offset %d and sequence %d", made, tc.offset, tc.syncSeq)
				}
				first := all[0].state
				if cp.GetTurn() != first.Turn || cp.GetGeneration() != first.Generation {
					t.Errorf("turn %d of generation %d, shard 0 stands at %d of %d", cp.GetTurn(), cp.GetGeneration(), first.Turn, first.Generation)
				}
				want := shardcmd.SnapshotRequest{Cut: "cut", Checkpoint: 7, Dir: w.dir, Export: true, Version: 7}
				if tc.inOrder {
					want.Turn, want.Generation = first.Turn, first.Generation
				}
				for i, s := range all {
					if s.snapshot != want {
						t.Errorf("shard %d was asked for %+v, want %+v", i, s.snapshot, want)
					}
				}
			})
		})
	}
}

// A cut that is never claimed writes nothing, and lets the shards go.
func TestACutThatIsNotClaimed(t *testing.T) {
	w := busOnly(t)
	shard := w.scripted(5)
	c := &cutter{s: w.view(w.alone()), name: "cut", chief: 1}
	log := &lines{}
	c.s.log = log.logger()
	shard.stuck = true
	full := errors.New("the log is full")
	_, err := c.make(t.Context(), false, func(context.Context) (int64, error) { return 0, full })
	if !errors.Is(err, full) || shard.released != 1 || shard.snapshot.Cut != "" || c.id != 0 {
		t.Errorf("%v; released %d times, snapshot %+v", err, shard.released, shard.snapshot)
	}
	if got := log.all(); len(got) != 1 || !strings.Contains(got[0], "was not released") {
		t.Errorf("log %q, the shard stays held", got)
	}
}

func TestWhatPassesByItself(t *testing.T) {
	for err, want := range map[error]bool{
		errNotNow: true, errTermEnded: true, bus.ErrUnavailable: true, fmt.Errorf("hold: %w", bus.Refuse(bus.CodeConflict, "x")): true,
		bus.Refuse(bus.CodeUnavailable, "x"): true, bus.Refuse(bus.CodeNotFound, "x"): true,
		bus.Refuse(bus.CodeInvalid, "x"): false, bus.Refuse(bus.CodeInternal, "x"): false, errors.New("no space left"): false,
		fmt.Errorf("%w: %w", errNotNow, bus.Refuse(bus.CodeInternal, "x")): false,
	} {
		if passes(err) != want {
			t.Errorf("%v passes: %v", err, !want)
		}
	}
}

// The entry of an export is made of what all shards wrote, all of it of this cut.
func TestEntryOfACut(t *testing.T) {
	w := busOnly(t)
	cfg := w.alone()
	cfg.Shards = 2
	s := w.view(cfg)
	offsets := map[int32]int64{0: 5}
	write := func(shard int, at map[int32]int64, skip string) *training.ShardFile {
		sh := &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: theJob, Checkpoint: 7, Shard: uint32(shard), Shards: 2, Offsets: at}, Dense: map[string]checkpoint.Variable{}}
		for i, v := range s.engine.Variables() {
			if modelspec.VariableShard(i, 2) == shard && v.Name != skip {
				sh.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: modelspec.InitVariable(smallSpec(), v)}
			}
		}
		path := fmt.Sprint("ps_", shard)
		if _, err := checkpoint.WriteShard(filepath.Join(w.dir, path), sh); err != nil {
			t.Fatal(err)
		}
		return &training.ShardFile{Shard: uint32(shard), Path: path}
	}
	made := func(files ...*training.ShardFile) cut {
		return cut{checkpoint: &training.Checkpoint{Id: 7, Dir: w.dir, Offsets: offsets, Shards: files}, syncSeq: 9}
	}
	c := &cutter{s: s, id: 7}
	e, err := c.entry(made(write(0, offsets, ""), write(1, offsets, "")))
	if err != nil || e.GetVersion() != 7 || e.GetSyncSeq() != 9 || e.GetModelDir() != filepath.Join(w.dir, exportsDir) || !slices.Equal(e.GetSubModels(), []string{"entry", "ps_0", "ps_1"}) {
		t.Errorf("%v, %v", e, err)
	}
	entry, err := checkpoint.ReadEntry(filepath.Join(w.dir, exportsDir, "entry", "7"))
	if err != nil || len(entry.Dense) != len(s.engine.Variables()) || entry.SyncSeq != 9 || entry.Shards != 2 {
		t.Errorf("entry %+v, %v", entry, err)
	}
	if _, err := c.entry(made(write(0, offsets, ""), write(1, map[int32]int64{0: 6}, ""))); err == nil || !strings.Contains(err.Error(), "shard 1 wrote offsets map[0:6], the cut is at map[0:5]") {
		t.Errorf("of another cut: %v", err)
	}
	for i, v := range s.engine.Variables() {
		shard := modelspec.VariableShard(i, 2)
		files := []*training.ShardFile{write(shard, offsets, v.Name), write(1-shard, offsets, "")}
		if _, err := c.entry(made(files...)); err == nil || !strings.Contains(err.Error(), v.Name) {
			t.Errorf("without %s: %v", v.Name, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(w.dir, "ps_1")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.entry(made(write(0, offsets, ""), &training.ShardFile{Shard: 1, Path: "ps_1"})); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a shard's files: %v", err)
	}
}

// A roll-back asks every shard, and ends what was under way only once all have heard it.
func TestRollbackAsksEveryShard(t *testing.T) {
	for _, refuses := range []int{-1, 0, 1} {
		w := busOnly(t)
		var mu sync.Mutex
		asked := map[int]shardcmd.RollbackRequest{}
		w.commands(2, func(i int, endpoint string, payload []byte) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			var r shardcmd.RollbackRequest
			if err := json.Unmarshal(payload, &r); err != nil || endpoint != shardcmd.Rollback {
				t.Errorf("%s: %v", endpoint, err)
			}
			asked[i] = r
			if i == refuses {
				return nil, bus.Refuse(bus.CodeInternal, "no checkpoint can be read")
			}
			return shardcmd.State{}, nil
		})
		cfg := w.alone()
		cfg.Shards = 2
		err := (&learner{s: w.view(cfg), partition: 3}).rollback(t.Context(), position{generation: 4})
		if refuses < 0 && !errors.Is(err, errMoved) || refuses >= 0 && (errors.Is(err, errMoved) || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("roll back shard %d", refuses))) {
			t.Errorf("shard %d refuses: %v", refuses, err)
		}
		for i := range 2 {
			if r := asked[i]; r.Generation != 4 || r.Reason != "partition 3: the shards stand apart" {
				t.Errorf("shard %d was asked %+v", i, r)
			}
		}
	}
}

// What a cut of an earlier chief, or before a return of the job, has made stands for nothing.
func TestACheckpointThatWasOvertakenIsNone(t *testing.T) {
	for name, meanwhile := range map[string]*training.Event{
		"another began one":       {Body: &training.Event_CheckpointStarted{CheckpointStarted: &training.CheckpointStarted{Id: 9}}},
		"the job has returned":    {Body: &training.Event_JobRestored{JobRestored: &training.JobRestored{Checkpoint: 1, Reason: "it diverged"}}},
		"nothing that matters":    nil,
		"a topic's new partition": {Body: &training.Event_TopicUpdated{TopicUpdated: &training.TopicUpdated{Partitions: 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := busOnly(t)
				s := w.view(w.alone())
				b := s.started()
				b.Partitions = 1
				w.started(b)
				shard := w.scripted(0)
				shard.snapshotted = func() {
					if meanwhile != nil {
						w.append(jobSubject(), meanwhile)
					}
				}
				w.caughtUp(s)
				id, _, err := (&chief{s: s, epoch: 1}).checkpoint(t.Context(), request{Reason: "now"})
				overtaken := name == "another began one" || name == "the job has returned"
				if id != 1 || (err != nil) != overtaken || err != nil && !strings.Contains(err.Error(), "meanwhile") {
					t.Errorf("checkpoint %d, %v", id, err)
				}
				var j lineage.Job
				s.lineage.Read(func(l lineage.State) { j = l.Jobs[theJob] })
				if (len(j.Checkpoints) == 0) != overtaken {
					t.Errorf("checkpoints %v", j.Checkpoints)
				}
			})
		})
	}
}

// The first checkpoint waits for shards that are ready and take no commands yet.
func TestTheFirstCheckpointWaitsForCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		s := w.view(w.alone())
		w.started(s.started())
		w.ready(0, 1, 1, 0, "h:1")
		var early atomic.Int32
		one := &scripted{state: shardcmd.State{Next: map[int32]int64{0: 5}}}
		w.commands(1, func(_ int, endpoint string, payload []byte) (any, error) {
			if early.Add(1) <= 3 {
				return nil, bus.Refuse(bus.CodeUnavailable, "soon")
			}
			return one.command(endpoint, payload)
		})
		w.caughtUp(s)
		if err := (&chief{s: s, epoch: 1}).retryCheckpoint(t.Context(), request{Reason: "start of the job"}); err != nil {
			t.Error(err)
		}
		if j := s.job(); len(j.Checkpoints) != 1 || len(j.Checkpoints[0].V.GetOffsets()) != 1 {
			t.Errorf("checkpoints %v", j.Checkpoints)
		}
	})
}
