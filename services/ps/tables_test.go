package ps

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// declare declares a variation of the counting model under the name it gives itself.
func (w *world) declare(change func(*model.ModelSpec)) Config {
	w.t.Helper()
	spec := proto.Clone(pstest.Counting()).(*model.ModelSpec)
	spec.Name = "varied"
	change(spec)
	w.append("model", spec.GetName(), &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: spec}}})
	cfg := w.config()
	cfg.Model = spec.GetName()
	return cfg
}

func TestAFullTableAppliesNothing(t *testing.T) {
	w := newWorld(t)
	cfg := w.declare(func(m *model.ModelSpec) { m.Tables[0].MaxRows = 3 })
	p := w.start(cfg)
	p.teach(pstest.Teach(0, 0, 0, 1, 1, 1, 2))
	before := p.hash()
	r := pstest.Teach(0, 0, 1, 2, 1, 1, 3, 3, 4) // two new ones, where one has room
	r.Tables = append([]rowwire.TableGrads{{Table: "movie", IDs: []int64{7}, Grads: []float32{1, 1, 1}}}, r.Tables...)
	_, err := p.Apply(soon(t), r)
	if rowwire.CodeOf(err) != rowwire.Unavailable || !strings.Contains(fmt.Sprint(err), `table "user" has reached max_rows, 3`) {
		t.Fatalf("apply to a full table: %v", err)
	}
	if got := p.hash(); got != before || len(p.table("movie")) != 0 {
		t.Error("the refused apply has changed something")
	}
	_, err = call[shardcmd.AssignResponse](w, 0, shardcmd.Assign, shardcmd.AssignRequest{RequestID: "a", Table: "user", IDs: []int64{8, 9}, Values: make([]float32, 4)})
	if pstest.Code(err) != "UNAVAILABLE" || !strings.Contains(fmt.Sprint(err), "max_rows") {
		t.Errorf("an assignment to a full table: %v", err)
	}
	// The same offsets with rows that fit go through: nothing was recorded.
	if res := p.teach(pstest.Teach(0, 0, 1, 2, 1, 1, 3, 3)); !res.Applied || p.table("user")[3][0] != -2 {
		t.Errorf("after the refusal: %+v, %v", res, p.table("user"))
	}
	p.sameRows(p.settled())
}

// Memory is a limit like rows: what goes beyond it is refused whole, for applies and
// assignments, and what fits goes through.
func TestATableOutOfMemoryAppliesNothing(t *testing.T) {
	w := newWorld(t)
	cfg := w.declare(func(m *model.ModelSpec) { m.Tables[0].MaxBytes = 64 << 10 })
	p := w.start(cfg)
	var ids []int64
	next := int64(0)
	refused := func() error {
		for {
			batch := []int64{next + 1, next + 2, next + 3}
			if _, err := p.Apply(soon(t), pstest.Teach(0, 0, next, next+1, 1, batch...)); err != nil {
				return err
			}
			ids = append(ids, batch...)
			if next++; next > 10_000 {
				t.Fatal("64 KiB hold 10000 rows")
			}
		}
	}
	err := refused()
	if rowwire.CodeOf(err) != rowwire.Unavailable || !strings.Contains(fmt.Sprint(err), `table "user" has reached max_bytes, 65536`) {
		t.Fatalf("apply to a table without memory left: %v", err)
	}
	before := p.hash()
	if n := len(p.table("user")); n < 1000 || n > 65536/16 {
		t.Errorf("64 KiB hold %d rows of 8 bytes, a time and an index entry", n)
	}
	for _, add := range []bool{false, true} {
		_, err = call[shardcmd.AssignResponse](w, 0, shardcmd.Assign, shardcmd.AssignRequest{RequestID: "a", Table: "user", IDs: []int64{1 << 40, 2 << 40, 3 << 40}, Values: make([]float32, 6), Add: add})
		if pstest.Code(err) != "UNAVAILABLE" || !strings.Contains(fmt.Sprint(err), "max_bytes") {
			t.Errorf("an assignment, add %t: %v", add, err)
		}
	}
	if p.hash() != before {
		t.Error("a refused call has changed something")
	}
	if res := p.teach(pstest.Teach(0, 0, next, next+1, 1, ids[:3]...)); !res.Applied {
		t.Errorf("rows that exist: %+v", res)
	}
	w.save(w.checkpoint(1, 1, 0))
	before = p.hash()
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	if p = w.start(cfg); p.hash() != before { // what the limit let in, it lets in again
		t.Error("the restarted shard holds something else")
	}
	p.sameRows(p.settled())
}

func TestExpiredRowsGoEverywhere(t *testing.T) {
	w := newWorld(t)
	cfg := w.declare(func(m *model.ModelSpec) {
		m.Tables[0].Expire = &model.Expire{Days: 3, Slots: []*model.SlotDays{{Slot: 1, Days: 0}}}
	})
	cfg.ClockStep = 3 * day * time.Second
	p := w.start(cfg)
	const forever = 1<<48 | 5
	p.teach(pstest.OnDay(10*day, 0, 1, 2, forever))
	f := p.settled()
	if len(f.rows["user"]) != 3 {
		t.Fatalf("published %v", f.rows["user"])
	}
	p.teach(pstest.OnDay(12*day, 1, 2))
	p.teach(pstest.OnDay(13*day, 2, 3)) // the clock is the newest record: row 1 has had its three days
	wait.For(t, "row 1 is gone", func() bool { return len(p.table("user")) == 3 })
	want := map[int64][]float32{2: {-2, -2}, 3: {-1, -1}, forever: {-1, -1}}
	f = p.settled()
	if !maps.EqualFunc(f.rows["user"], want, slices.Equal) {
		t.Errorf("a follower holds %v, want %v", f.rows["user"], want)
	}
	p.sameRows(f)
	// A checkpoint does not bring it back, and one from before is swept again.
	c := w.checkpoint(1, 1, 0)
	w.save(c)
	if s := w.readShard(c, 0); s.Manifest.Tables[1].Clock != 13*day || len(s.Tables["user"]) != 3 {
		t.Errorf("the checkpoint has %+v with %d rows", s.Manifest.Tables[1], len(s.Tables["user"]))
	}
	p.teach(pstest.OnDay(16*day, 3, 9)) // 2 and 3 go
	wait.For(t, "rows 2 and 3 are gone", func() bool { return len(p.table("user")) == 2 })
	p.settled()
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p = w.start(cfg) // from the checkpoint: 2 and 3 are back until the record comes again
	p.teach(pstest.OnDay(16*day, 3, 9))
	wait.For(t, "rows 2 and 3 are gone again", func() bool { return len(p.table("user")) == 2 })
	p.sameRows(p.settled())
}

// TestExpiryLeavesCutsAlone: what is published before a checkpoint is what it holds.
func TestExpiryLeavesCutsAlone(t *testing.T) {
	w := newWorld(t)
	cfg := w.declare(func(m *model.ModelSpec) { m.Tables[0].Expire = &model.Expire{Days: 1} })
	cfg.ClockStep, cfg.SyncInterval = 2*day*time.Second, time.Hour // sweeps come from here alone
	p := w.start(cfg)
	p.teach(pstest.OnDay(10*day, 0, 1))
	p.teach(pstest.OnDay(12*day, 1, 2))
	st := must[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: "c"})
	if n := p.st.Sweep(); n != 0 || len(p.table("user")) != 2 {
		t.Errorf("%d rows expired while cut %s holds the shard", n, st.Held)
	}
	must[shardcmd.State](w, 0, shardcmd.Release, shardcmd.ReleaseRequest{Cut: "c"})
	if n := p.st.Sweep(); n != 1 || len(p.table("user")) != 1 {
		t.Errorf("%d rows expired once it was released, want row 1", n)
	}
}

func filtered(m *model.ModelSpec) {
	m.Tables[0].Admission = &model.Admission{
		Kind:      &model.Admission_SlidingCounter{SlidingCounter: &model.SlidingCounter{Capacity: proto.Uint64(100_000)}},
		Threshold: 2,
	}
}

func TestAdmissionIsPartOfTheCut(t *testing.T) {
	w := newWorld(t)
	cfg := w.declare(filtered)
	p := w.start(cfg)
	empty := p.hash()
	p.teach(pstest.Teach(0, 0, 0, 1, 1, 1, 2))
	if len(p.table("user")) != 0 {
		t.Fatalf("rows after one occurrence: %v", p.table("user"))
	}
	if p.hash() == empty {
		t.Error("what the filter has counted is not in the hash")
	}
	f := p.settled()
	for _, m := range f.seen {
		if d := decoded(t, m); len(d.GetRows()) > 0 {
			t.Errorf("ids without a row are published: %v", d)
		}
	}
	if len(f.ranges) != 1 {
		t.Errorf("ranges %v", f.ranges)
	}
	c := w.checkpoint(1, 1, 0)
	w.save(c)
	s := w.readShard(c, 0)
	if len(s.Filters["user"]) == 0 || len(s.Manifest.Filters) != 1 {
		t.Fatalf("the checkpoint has filters %v", s.Manifest.Filters)
	}
	p.teach(pstest.Teach(0, 0, 1, 2, 1, 1)) // the second occurrence of 1: lost with the process
	p.teach(pstest.Teach(0, 0, 2, 3, 1, 1))
	whole := p.hash()
	if got := p.table("user"); len(got) != 1 || got[1][0] != -1 {
		t.Fatalf("after three occurrences: %v", got)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p = w.start(cfg)
	if len(p.table("user")) != 0 {
		t.Errorf("the checkpoint had rows: %v", p.table("user"))
	}
	p.teach(pstest.Teach(0, 0, 1, 2, 1, 1))
	p.teach(pstest.Teach(0, 0, 2, 3, 1, 1))
	if p.hash() != whole {
		t.Error("the restarted shard has counted otherwise")
	}
	p.sameRows(p.settled())
}

// TestAssignmentsPassTheFilter: a row that somebody names is there, now and after a
// restart that sets it again.
func TestAssignmentsPassTheFilter(t *testing.T) {
	w := newWorld(t)
	cfg := w.declare(filtered)
	p := w.start(cfg)
	must[shardcmd.AssignResponse](w, 0, shardcmd.Assign, shardcmd.AssignRequest{RequestID: "a", Table: "user", IDs: []int64{8}, Values: []float32{3, 4}})
	want := map[int64][]float32{8: {3, 4}}
	for range 2 {
		f := p.settled()
		if got := p.table("user"); !maps.EqualFunc(got, want, slices.Equal) || !maps.EqualFunc(f.rows["user"], want, slices.Equal) {
			t.Fatalf("the shard holds %v, a follower %v", got, f.rows["user"])
		}
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
		p = w.start(cfg)
	}
}

// segmented has two segments with optimizers of several slots.
func segmented(m *model.ModelSpec) {
	t := m.Tables[1]
	uniform := t.Initializer
	t.Optimizer, t.Initializer = nil, nil
	t.Segments = []*model.Segment{
		{Dim: 1, Optimizer: &model.Optimizer{Kind: &model.Optimizer_Ftrl{Ftrl: &model.Ftrl{Beta: 1}}}, Initializer: uniform},
		{Dim: 2, Optimizer: &model.Optimizer{Kind: &model.Optimizer_Dc{Dc: &model.Dc{Lambda: 0.1, Optimizer: &model.Optimizer{Kind: &model.Optimizer_Adam{Adam: &model.Adam{}}}}}}, Initializer: uniform},
	}
}

func TestSegmentsOutliveARestart(t *testing.T) {
	w := newWorld(t)
	cfg := w.declare(segmented)
	learnMovies := func(p *proc, from int64) {
		p.t.Helper()
		r := pstest.Teach(0, 0, from, from+1, 1)
		r.Tables = []rowwire.TableGrads{{Table: "movie", IDs: []int64{1, 2, 1}, Grads: []float32{1, 2, 3, -1, -2, -3, .5, .25, 8}}}
		p.teach(r)
	}
	p := w.start(cfg)
	learnMovies(p, 0)
	learnMovies(p, 1)
	c := w.checkpoint(1, 1, 0)
	w.save(c)
	s := w.readShard(c, 0)
	if kinds := checkpoint.Kinds(s.Manifest.Tables[0].Opt); !slices.Equal(kinds, []string{"ftrl", "adam"}) {
		t.Errorf("the checkpoint says %v", kinds)
	}
	learnMovies(p, 2)
	want, rows := p.hash(), p.table("movie")
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p = w.start(cfg)
	learnMovies(p, 2)
	if p.hash() != want {
		t.Errorf("the restarted shard holds %v, before %v", p.table("movie"), rows)
	}
	// The same job under a model with another optimizer of as many slots must not start.
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	cfg = w.declare(func(m *model.ModelSpec) {
		segmented(m)
		m.Name = "other"
		m.Tables[1].Segments[0].Optimizer = &model.Optimizer{Kind: &model.Optimizer_Adadelta{Adadelta: &model.Adadelta{}}}
	})
	err := w.server(cfg).Run(soon(t))
	if err == nil || !strings.Contains(err.Error(), "was saved by [ftrl adam]") {
		t.Errorf("started with another optimizer: %v", err)
	}
}

// TestTurnsExpireTheSame has a deterministic shard lose turns again and again: expiry and
// admission must come out as in a run that lost nothing.
func TestTurnsExpireTheSame(t *testing.T) {
	spec := func(m *model.ModelSpec) {
		filtered(m)
		m.Tables[0].Admission.Threshold = 1
		m.Tables[0].Expire = &model.Expire{Days: 2}
	}
	rows := func(turn int) (users []int64, unix int64) {
		r := rand.New(rand.NewPCG(uint64(turn), 5))
		for range 3 {
			users = append(users, int64(r.IntN(30)))
		}
		return users, 100*day + int64(turn)*day/7
	}
	const turns = 60
	run := func(crashes bool) (hashes []string, left map[int64][]float32) {
		w := newWorld(t)
		cfg := w.declare(spec)
		cfg.Deterministic = true
		p, crashed := w.start(cfg), map[int]bool{}
		for turn := 0; turn < turns; {
			users, unix := rows(turn)
			r := pstest.OnDay(unix, int64(turn), users...)
			r.Turn, r.Generation = uint64(turn), p.st.Standing().Generation
			p.teach(r)
			turn++
			if turn%20 == 0 {
				w.save(w.checkpoint(1, int64(turn), p.st.Standing().Generation))
				hashes = append(hashes[:turn/20-1], p.hash())
			}
			if crashes && turn%20 == 13 && !crashed[turn] {
				crashed[turn] = true
				if err := p.stop(); err != nil {
					t.Fatal(err)
				}
				p = w.start(cfg)
				turn = int(p.st.Standing().Turn)
			}
		}
		p.sameRows(p.settled())
		return hashes, p.table("user")
	}
	want, rowsOf := run(false)
	got, _ := run(true)
	if diff := cmp.Diff(want, got); diff != "" || len(want) != 3 {
		t.Errorf("hashes at the cuts (-without +with crashes):\n%s", diff)
	}
	if len(rowsOf) == 0 || len(rowsOf) > 25 {
		t.Errorf("%d rows are left: nothing expired, or all", len(rowsOf))
	}
}

// TestRandomLifeWithCompleteTables drives a shard with filter, limits, several optimizers,
// checkpoints and crashes against a run that lost nothing.
func TestRandomLifeWithCompleteTables(t *testing.T) {
	w := newWorld(t)
	spec := func(m *model.ModelSpec) {
		segmented(m)
		filtered(m)
		m.Tables[0].MaxRows = 40
	}
	cfg := w.declare(spec)
	r := rand.New(rand.NewPCG(11, 12))
	var script [][]int64 // users, range by range
	p := w.start(cfg)
	undisturbed := newWorld(t)
	reference := undisturbed.start(undisturbed.declare(spec))
	crashes, refusals, saved := 0, 0, 0
	send := func(p *proc, k int) error {
		req := pstest.OnDay(10*day+int64(k), int64(k), script[k]...)
		movies := make([]float32, 3*len(script[k]))
		for i := range movies {
			movies[i] = float32(i%5) - 2
		}
		req.Tables = append(req.Tables, rowwire.TableGrads{Table: "movie", IDs: script[k], Grads: movies})
		ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
		defer cancel()
		_, err := p.Apply(ctx, req)
		return err
	}
	next := 0
	for len(script) < 200 {
		switch k := r.IntN(20); {
		case k == 0 && next == len(script):
			saved++
			w.save(w.checkpoint(1, int64(saved), 0))
		case k == 1:
			crashes++
			if err := p.stop(); err != nil {
				t.Fatal(err)
			}
			p = w.start(cfg)
			o, err := p.Offsets(soon(t), &rowwire.OffsetsRequest{Job: job})
			if err != nil {
				t.Fatal(err)
			}
			next = int(o.Next[0])
		default:
			if next == len(script) {
				var users []int64
				for range 1 + r.IntN(6) {
					users = append(users, int64(r.IntN(70)))
				}
				script = append(script, users)
				err := send(reference, next)
				if rowwire.CodeOf(err) == rowwire.Unavailable && strings.Contains(err.Error(), "max_rows") {
					refusals++
					script[next] = []int64{1} // what the trainer would send with room
					err = send(reference, next)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := send(p, next); err != nil {
				t.Fatal(err)
			}
			next++
		}
	}
	for ; next < len(script); next++ {
		if err := send(p, next); err != nil {
			t.Fatal(err)
		}
	}
	if p.hash() != reference.hash() {
		t.Errorf("after %d crashes the rows are %v, they should be %v", crashes, p.table("user"), reference.table("user"))
	}
	p.sameRows(p.settled())
	if crashes < 3 || refusals == 0 || saved == 0 {
		t.Errorf("%d crashes, %d refusals, %d checkpoints: the test does not test", crashes, refusals, saved)
	}
}
