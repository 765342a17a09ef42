package ps

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

func (p *proc) user(ids ...int64) []float32 {
	p.t.Helper()
	r, err := p.Lookup(soon(p.t), &rowwire.LookupRequest{Model: job, Tables: []rowwire.TableIDs{{Table: "user", IDs: ids}}})
	if err != nil {
		p.t.Fatal(err)
	}
	return r.Values[0]
}

// What was assigned and acked is there after a restart, from the checkpoint or from the
// delta behind it, and followers have it too.
func TestAssignedRowsSurviveARestart(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1, 2))
	must[shardcmd.AssignResponse](w, 0, shardcmd.Assign, pstest.Set("before", []int64{7}, 70, 71))
	w.save(w.checkpoint(1, 1, 0))
	first := must[shardcmd.AssignResponse](w, 0, shardcmd.Assign, pstest.Set("after", []int64{1, 8}, 10, 11, 80, 81))
	more := pstest.Set("more", []int64{8}, 1, 2)
	more.Add = true
	must[shardcmd.AssignResponse](w, 0, shardcmd.Assign, more)
	want := []float32{10, 11, 70, 71, 81, 83}
	if got := p.user(1, 7, 8); !reflect.DeepEqual(got, want) || first.SyncSeq == 0 {
		t.Fatalf("rows are %v, want %v; %+v", got, want, first)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p = w.start(w.config())
	if got := p.user(1, 7, 8); !reflect.DeepEqual(got, want) {
		t.Errorf("after a restart rows are %v, want %v", got, want)
	}
	// Repeats, also across the restart, change nothing.
	for _, r := range []shardcmd.AssignRequest{more, pstest.Set("after", []int64{1, 8}, 10, 11, 80, 81)} {
		if a := must[shardcmd.AssignResponse](w, 0, shardcmd.Assign, r); a.SyncSeq != 0 {
			t.Errorf("%s was assigned twice", r.RequestID)
		}
	}
	if got := p.user(1, 7, 8); !reflect.DeepEqual(got, want) {
		t.Errorf("after repeats rows are %v, want %v", got, want)
	}
	p.sameRows(p.settled())
}

// Adding to a row that does not exist adds to its first values; to one that training sees
// quantized, it adds to what the row holds. Both are there after a restart.
func TestAddingToRows(t *testing.T) {
	w := newWorld(t)
	cfg := w.declare(func(m *model.ModelSpec) {
		filtered(m)
		m.Tables[0].Initializer = &model.Initializer{Kind: &model.Initializer_Constants{Constants: &model.Constants{Constant: 7}}}
		m.Tables[0].Compressor = &model.Compressor{Kind: &model.Compressor_FixedR8{FixedR8: &model.FixedR8{R: proto.Float32(16)}}}
	})
	p := w.start(cfg)
	add := func(id string, ids []int64, values ...float32) {
		t.Helper()
		r := pstest.Set(id, ids, values...)
		r.Add = true
		must[shardcmd.AssignResponse](w, 0, shardcmd.Assign, r)
	}
	add("new", []int64{5}, 1, .01)
	must[shardcmd.AssignResponse](w, 0, shardcmd.Assign, pstest.Set("set", []int64{6}, .01, .02))
	add("old", []int64{6, 5}, .01, .01, .01, .01)
	want := map[int64][]float32{5: {float32(8) + .01, float32(7) + .01 + .01}, 6: {float32(.01) + .01, float32(.02) + .01}}
	for range 2 {
		f := p.settled()
		if got := p.table("user"); !maps.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("the shard holds %v, want %v", got, want)
		}
		for id, row := range want {
			for i, x := range row {
				if got := f.rows["user"][id][i]; got != float32(math.Trunc(float64(x)*8+.5))/8 && got != x {
					t.Errorf("followers have %v of row %d, which is %v", got, id, x)
				}
			}
		}
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
		p = w.start(cfg)
	}
	// The filter goes on as before.
	p.teach(pstest.Teach(0, 0, 0, 1, 1, 9))
	if got := p.table("user"); len(got) != 2 {
		t.Errorf("an id that occurred once has a row: %v", got)
	}
}

// A bus that is away leaves the outcome open; the repeat under the same id settles it.
func TestAssignWhileTheBusIsAway(t *testing.T) {
	w := newWorld(t)
	h := &hooks{Bus: w.bus}
	w.bus = h
	p := w.start(w.config())
	var away atomic.Bool
	away.Store(true)
	h.set(func(next func() (uint64, error), _ []bus.DeltaDraft) (uint64, error) {
		if away.Load() {
			return 0, bus.ErrUnavailable
		}
		return next()
	})
	r := pstest.Set("r", []int64{5}, 1, 2)
	r.Add = false
	if _, err := call[shardcmd.AssignResponse](w, 0, shardcmd.Assign, r); pstest.Code(err) != "UNAVAILABLE" {
		t.Fatalf("without a bus: %v", err)
	}
	away.Store(false)
	must[shardcmd.AssignResponse](w, 0, shardcmd.Assign, r)
	f := p.settled()
	if got := f.rows["user"][5]; !reflect.DeepEqual(got, []float32{1, 2}) {
		t.Errorf("followers have %v", got)
	}
}

func TestAssignRefuses(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	big := pstest.Set("r", make([]int64, 4097))
	inf := `{"requestId":"r","table":"user","ids":[1],"values":[1e39,0]}`
	for name, tc := range map[string]struct {
		r    any
		code string
	}{
		"no request id":   {pstest.Set("", []int64{1}, 1, 2), "INVALID"},
		"no table":        {shardcmd.AssignRequest{RequestID: "r", Table: "x", IDs: []int64{1}, Values: []float32{1}}, "NOT_FOUND"},
		"no rows":         {pstest.Set("r", nil), "INVALID"},
		"too many rows":   {big, "INVALID"},
		"wrong dimension": {pstest.Set("r", []int64{1}, 1), "INVALID"},
		"an id twice":     {pstest.Set("r", []int64{1, 1}, 1, 2, 3, 4), "INVALID"},
		"too large":       {pstest.Set("r", []int64{1}, 1e16, 2), "INVALID"},
		"infinite":        {json.RawMessage(inf), "INVALID"},
		"add too much":    {shardcmd.AssignRequest{RequestID: "r", Table: "user", IDs: []int64{99}, Values: []float32{1, 2e15}, Add: true}, "INVALID"},
		"another shard's": {pstest.Set("r", []int64{table.NoID}, 1, 2), "INVALID"},
	} {
		if _, err := call[shardcmd.AssignResponse](w, 0, shardcmd.Assign, tc.r); pstest.Code(err) != tc.code {
			t.Errorf("%s: %v, want %s", name, err, tc.code)
		}
	}
	if s := must[shardcmd.StatsResponse](w, 0, shardcmd.Stats, struct{}{}); s.Rows["user"] != 0 {
		t.Errorf("something was assigned: %+v", s)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	cfg := w.config()
	cfg.Deterministic = true
	w.start(cfg)
	if _, err := call[shardcmd.AssignResponse](w, 0, shardcmd.Assign, pstest.Set("r", []int64{1}, 1, 2)); pstest.Code(err) != "CONFLICT" || !strings.Contains(err.Error(), "deterministic") {
		t.Errorf("a deterministic job: %v", err)
	}
}

// Refused applies count, and count for the average, as the calls they are.
func TestStatsCountFailedApplies(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1, 2))
	bad := pstest.Teach(0, 0, 10, 20, 1, 1)
	bad.Tables[0].Grads = bad.Tables[0].Grads[:1]
	if _, err := p.Apply(soon(t), bad); err == nil {
		t.Fatal("a gradient of the wrong shape was learnt")
	}
	p.user(1, 2, 3)
	s := must[shardcmd.StatsResponse](w, 0, shardcmd.Stats, struct{}{})
	if s.Apply.Count != 2 || s.Apply.Failed != 1 || !(s.Apply.AvgLatencyUS > 0) || s.Step != 1 {
		t.Errorf("applies: %+v", s.Apply)
	}
	if s.Lookup.Count != 1 || s.Lookup.Rows != 3 || !(s.Lookup.AvgLatencyUS > 0) || s.Rows["user"] != 2 {
		t.Errorf("lookups: %+v, rows %v", s.Lookup, s.Rows)
	}
	if h := must[shardcmd.HealthResponse](w, 0, shardcmd.Health, struct{}{}); !h.Serving {
		t.Errorf("health: %+v", h)
	}
	p.st.Suspend(rowwire.Errorf(rowwire.Unavailable, "resting"))
	if h := must[shardcmd.HealthResponse](w, 0, shardcmd.Health, struct{}{}); h.Serving || h.Reason != "resting" {
		t.Errorf("health while suspended: %+v", h)
	}
}

func TestWorkersMeetAtAShard(t *testing.T) {
	w := newWorld(t)
	w.start(w.config())
	done := make(chan error, 3)
	for i := range 3 {
		go func() {
			a, err := call[shardcmd.BarrierResponse](w, 0, shardcmd.Barrier, shardcmd.BarrierRequest{ID: "start", Worker: fmt.Sprint(i), NumWorkers: 3})
			if err == nil && (a.Round != 1 || len(a.Workers) != 3) {
				err = fmt.Errorf("%+v", a)
			}
			done <- err
		}()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if _, err := call[shardcmd.BarrierResponse](w, 0, shardcmd.Barrier, shardcmd.BarrierRequest{ID: "start", Worker: "0"}); pstest.Code(err) != "INVALID" {
		t.Errorf("no workers: %v", err)
	}
}

// An assignment that comes while a cut is held waits until it ends: were it published in
// between, a follower of the export would have it from neither.
func TestAnAssignmentWaitsForTheCut(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1, 2))
	must[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: "c"})
	must[shardcmd.State](w, 0, shardcmd.Advance, shardcmd.AdvanceRequest{Cut: "c", Targets: map[int32]int64{0: 10}})
	file := w.snapshot(0, shardcmd.SnapshotRequest{Cut: "c", Checkpoint: 1, Export: true})
	cfg := w.config()
	identity, size, err := checkpoint.Written(filepath.Join(cfg.Dir, "exported_models", "ps_0", "1"))
	if x := file.GetExported(); err != nil || x.GetExport() != identity || x.GetBytes() != size || len(identity) != 64 {
		t.Errorf("the shard says that it exported %v, there lies %s of %d bytes, %v", x, identity, size, err)
	}
	answered := make(chan shardcmd.AssignResponse, 1)
	go func() {
		a, err := call[shardcmd.AssignResponse](w, 0, shardcmd.Assign, pstest.Set("during", []int64{7}, 70, 71))
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	p.settled() // whatever goes out while the shard is held
	end, err := w.bus.Deltas().Last(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if st := must[shardcmd.State](w, 0, shardcmd.Offsets, struct{}{}); st.Held != "c" || len(answered) > 0 {
		t.Fatalf("held by %q, %d assignments answered", st.Held, len(answered))
	}
	must[shardcmd.State](w, 0, shardcmd.Release, shardcmd.ReleaseRequest{Cut: "c"})
	a := <-answered
	if a.SyncSeq <= end {
		t.Errorf("the assignment is in delta %d, the export is followed from %d on", a.SyncSeq, end)
	}
	for _, r := range w.readShard(&training.Checkpoint{Shards: []*training.ShardFile{file}}, 0).Tables["user"] {
		if r.ID == 7 {
			t.Error("the checkpoint holds what was assigned after it")
		}
	}
	if got := p.user(7); !slices.Equal(got, []float32{70, 71}) {
		t.Errorf("the row is %v", got)
	}
	p.sameRows(p.settled())
}

// A request that a checkpoint holds is known after a restart, too.
func TestRepeatedAssignmentAfterACheckpointChangesNothing(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 0, 1))
	more := pstest.Set("r1", []int64{1}, 100, 100)
	more.Add = true
	must[shardcmd.AssignResponse](w, 0, shardcmd.Assign, more)
	w.save(w.checkpoint(1, 1, 0))
	for i := range int64(2) { // from the checkpoint, and from one of what came from it
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
		p = w.start(w.config())
		if a := must[shardcmd.AssignResponse](w, 0, shardcmd.Assign, more); a.SyncSeq != 0 {
			t.Errorf("the request was carried out again, in delta %d", a.SyncSeq)
		}
		if got := p.user(1); !slices.Equal(got, []float32{100, 100}) {
			t.Fatalf("the row is %v, want it added to once", got)
		}
		w.save(w.checkpoint(1, 2+i, 0))
	}
}

// What was learnt behind an assignment is not undone by a restart from a checkpoint that
// holds both: only deltas behind the checkpoint are read again.
func TestAnAssignmentInACheckpointIsNotSetAgain(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.settled() // the untrained variables
	must[shardcmd.AssignResponse](w, 0, shardcmd.Assign, pstest.Set("r1", []int64{1}, 100, 100))
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	w.save(w.checkpoint(1, 1, 0))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p = w.start(w.config())
	if got := p.user(1); !slices.Equal(got, []float32{99, 99}) {
		t.Errorf("the row is %v, want what was learnt behind the assignment", got)
	}
}
