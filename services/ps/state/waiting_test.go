package state

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/ps/pstest"
	"github.com/monolith-go/monolith/services/ps/publish"
)

// syncs declares how long rows of a table wait.
func syncs(table int, interval time.Duration) func(*model.ModelSpec) {
	return func(m *model.ModelSpec) {
		m.Tables[table].Sync = &model.Sync{IntervalMs: uint64(interval / time.Millisecond)}
	}
}

// A table goes out when its interval is over and with everything else that must be whole; the
// ranges go when no row waits that they made.
func TestATableWaitsForItsInterval(t *testing.T) {
	s := counting(t, syncs(1, time.Second))
	begin := time.Unix(1000, 0)
	never := func(int) bool { return false }
	next := int64(0)
	for _, tc := range []struct {
		at          time.Duration
		users       []int64
		movies      []int64
		flush       bool
		user, movie int // rows that went
		to          int64
	}{
		{0, []int64{1}, []int64{1}, false, 1, 1, 1},
		{100 * time.Millisecond, []int64{1}, nil, false, 1, 0, 2},
		{200 * time.Millisecond, []int64{2}, []int64{1, 2}, false, 1, 0, 0},
		{300 * time.Millisecond, []int64{3}, []int64{2, 3}, false, 1, 0, 0},
		{999 * time.Millisecond, nil, nil, false, 0, 0, 0},
		{1000 * time.Millisecond, nil, nil, false, 0, 3, 4},
		{1100 * time.Millisecond, nil, []int64{4}, false, 0, 0, 0},
		{1200 * time.Millisecond, []int64{4}, nil, true, 1, 1, 6}, // a cut
		{1300 * time.Millisecond, nil, []int64{4}, false, 0, 0, 0},
		{2000 * time.Millisecond, nil, nil, false, 0, 1, 7},
		{9000 * time.Millisecond, nil, []int64{5}, false, 0, 1, 8}, // nothing waited for so long
	} {
		if len(tc.users)+len(tc.movies) > 0 {
			rate(t, s, next, tc.users, tc.movies)
			next++
		}
		at := begin.Add(tc.at)
		if tc.flush {
			at = time.Time{}
		}
		got, to := map[string]int{}, int64(0)
		if h := s.CollectDue(at, never); h != nil {
			for _, r := range h.Rows {
				got[r.Table] += len(r.IDs)
			}
			for _, r := range h.Ranges {
				to = r.To
			}
		}
		if got["user"] != tc.user || got["movie"] != tc.movie || to != tc.to {
			t.Errorf("at %v went %v and ranges up to %d: want %d users, %d movies and %d", tc.at, got, to, tc.user, tc.movie, tc.to)
		}
	}
}

// counting is an untrained shard of the counting model that answers.
func counting(t *testing.T, change ...func(*model.ModelSpec)) *Shard {
	t.Helper()
	spec := pstest.Counting()
	for _, f := range change {
		f(spec)
	}
	return loaded(t, Config{Job: job, Shards: 1}, spec)
}

// rate teaches a record in which each of the users' and movies' rows moves.
func rate(t *testing.T, s *Shard, offset int64, users, movies []int64) {
	t.Helper()
	r := pstest.Teach(0, 0, offset, offset+1, 1, users...)
	if len(movies) > 0 {
		grads := make([]float32, 3*len(movies))
		for i := range grads {
			grads[i] = 1
		}
		r.Tables = append(r.Tables, rowwire.TableGrads{Table: "movie", IDs: movies, Grads: grads})
	}
	if _, err := s.Apply(t.Context(), r, ""); err != nil {
		t.Fatal(err)
	}
}

// within declares how far a row of a table that waits may be from what followers have.
func within(table int, tolerance float32) func(*model.ModelSpec) {
	return func(m *model.ModelSpec) {
		if m.Tables[table].Sync == nil {
			m.Tables[table].Sync = &model.Sync{}
		}
		m.Tables[table].Sync.Tolerance = &tolerance
	}
}

// A row that has moved little waits, one that has moved far goes at once, and one that is as followers
// have it does not go at all; whoever waits goes when the interval of ten seconds is over.
func TestRowsWaitWhileTheyAreNear(t *testing.T) {
	type second struct {
		moves float32 // by which each number moves
		goes  bool
	}
	for name, tc := range map[string]struct {
		compressor *model.Compressor
		tolerance  float32
		seconds    []second
	}{
		"near":        {nil, .1, []second{{1, true}, {.05, false}, {.04, false}, {0, false}, {0, false}, {0, false}, {0, false}, {0, false}, {0, false}, {0, false}, {0, true}, {0, false}}},
		"far":         {nil, .1, []second{{1, true}, {.05, false}, {.06, true}, {.06, false}, {.06, true}, {0, false}, {.06, false}, {.2, true}}},
		"there again": {nil, .1, []second{{1, true}, {.0625, false}, {-.0625, false}, {0, false}, {0, false}, {0, false}, {0, false}, {0, false}, {0, false}, {0, false}, {0, false}}},
		"exactly":     {nil, 0, []second{{1, true}, {.0625, true}, {.0625, true}, {0, false}}},
		"steps":       {pstest.Bytes(4), 0, []second{{1, true}, {.005, false}, {.005, false}, {.02, true}, {0, false}}},
		"halves":      {pstest.Halves(), 0, []second{{1, true}, {.0001, false}, {.0001, false}, {.001, true}, {0, false}}},
		"infinite":    {pstest.Halves(), .5, []second{{70000, true}, {1, true}, {1, true}, {-69000, true}, {1, false}}}, // whole ones are not compared
		"from zero":   {nil, 1, []second{{1, true}, {-1, false}, {.5, false}, {.5, false}, {1, false}, {.1, true}}},
	} {
		s := counting(t, syncs(0, 10*time.Second), within(0, tc.tolerance), func(m *model.ModelSpec) { m.Tables[0].Compressor = tc.compressor })
		next := int64(0)
		for i, sec := range tc.seconds {
			if sec.moves != 0 {
				if _, err := s.Apply(t.Context(), pstest.Teach(0, 0, next, next+1, -sec.moves, 1), ""); err != nil {
					t.Fatal(err)
				}
				next++
			}
			h := s.CollectDue(time.Unix(int64(1000+i), 0), func(int) bool { return false })
			if goes := h != nil && len(h.Rows) > 0; goes != sec.goes {
				t.Errorf("%s: in second %d the row goes: %v", name, i, goes)
			}
		}
	}
}

// What changes a row otherwise than by learning has it go, and a row that is gone is not missed.
func TestRowsThatChangeOtherwiseDoNotWait(t *testing.T) {
	s := counting(t, syncs(0, time.Hour), within(0, 1))
	never := func(int) bool { return false }
	now := time.Unix(1000, 0)
	collect := func() *publish.Dirty {
		now = now.Add(time.Second)
		return s.CollectDue(now, never)
	}
	rate(t, s, 0, []int64{1, 2}, nil)
	collect()
	rate(t, s, 1, []int64{1, 2}, nil)
	if h := collect(); h != nil || s.Backlog() != 2 {
		t.Fatalf("%v went, %d rows wait: the test shows nothing", h, s.Backlog())
	}
	if _, err := s.Assign(pstest.Set("r", []int64{1}, -2, -2), now); err != nil { // as it is
		t.Fatal(err)
	}
	if h := collect(); h == nil || len(h.Rows) != 1 || !slices.Equal(h.Rows[0].IDs, []int64{1}) || s.Backlog() != 1 {
		t.Errorf("a row that was set: %+v, and %d wait", h, s.Backlog())
	}
	s.tables["user"].Remove([]int64{2})
	s.mu.Lock()
	s.miss("user", []int64{2})
	s.mu.Unlock()
	if h := collect(); h == nil || len(h.Rows) != 1 || !slices.Equal(h.Rows[0].Removed, []int64{2}) || len(h.Ranges) != 1 || h.Ranges[0].To != 2 || s.Backlog() != 0 {
		t.Errorf("a row that went: %+v, and %d wait", h, s.Backlog())
	}
	rate(t, s, 2, []int64{2}, nil)
	if h := collect(); h == nil || len(h.Rows) != 1 || !slices.Equal(h.Rows[0].IDs, []int64{2}) {
		t.Errorf("a row that came back: %+v", h)
	}
	rate(t, s, 3, []int64{1, 2}, nil)
	collect()
	if err := s.Load(nil); err != nil { // another timeline
		t.Fatal(err)
	}
	s.Resume(2, 0)
	rate(t, s, 0, []int64{1}, nil)
	if h := collect(); h == nil || len(h.Rows) != 1 || h.Rows[0].Values[0] != -1 || h.Ranges[0].From != 0 {
		t.Errorf("behind a return: %+v", h)
	}
}

// What waits for its interval is not due, unlike what only a publication is missing for.
func TestWhatIsDue(t *testing.T) {
	now, never := time.Unix(1000, 0), func(int) bool { return false }
	for name, tc := range map[string]struct {
		change               []func(*model.ModelSpec)
		touched, due, behind int // of two rows: due once they were touched, and behind the next collection; due an hour later
	}{
		"at once":      {nil, 2, 0, 0},
		"an interval":  {[]func(*model.ModelSpec){syncs(0, time.Hour)}, 0, 0, 2},
		"a tolerance":  {[]func(*model.ModelSpec){syncs(0, time.Hour), within(0, 1)}, 2, 0, 0},
		"what is same": {[]func(*model.ModelSpec){within(0, 0)}, 2, 0, 0},
	} {
		s := counting(t, tc.change...)
		rate(t, s, 0, []int64{1, 2}, nil)
		s.CollectDue(now, never)
		rate(t, s, 1, []int64{1, 2}, nil)
		touched := s.Due(now)
		s.CollectDue(now.Add(time.Second), never)
		if got := s.Due(now.Add(time.Second)); touched != tc.touched || got != tc.due || s.Due(now.Add(time.Hour)) != tc.behind {
			t.Errorf("%s: %d rows are due once touched, %d behind a collection, %d in an hour: want %d, %d, %d", name, touched, got, s.Due(now.Add(time.Hour)), tc.touched, tc.due, tc.behind)
		}
	}
}

// What is kept for comparison is bounded: rows beyond it go as they are touched.
func TestWhatIsKnownIsBounded(t *testing.T) {
	s := counting(t, syncs(0, time.Hour), within(0, 1))
	now := time.Unix(1000, 0)
	went := func(offset int64) (n int) {
		rate(t, s, offset, []int64{1, 2}, nil)
		now = now.Add(time.Second)
		if h := s.CollectDue(now, func(int) bool { return false }); h != nil && len(h.Rows) > 0 {
			n = len(h.Rows[0].IDs)
		}
		return n
	}
	w := s.waiting["user"]
	if n := went(0); n != 2 || w.bytes != 0 {
		t.Fatalf("%d rows went, %d bytes are kept", n, w.bytes)
	}
	if n := went(1); n != 0 || w.bytes != 2*(8+hadBytes) {
		t.Errorf("%d rows went, %d bytes are kept", n, w.bytes)
	}
	if h := s.CollectDirty(func(int) bool { return false }); h == nil || w.bytes != 0 || len(w.rows) != 0 {
		t.Errorf("behind a cut %d bytes of %d rows are kept", w.bytes, len(w.rows))
	}
	w.bytes = followersBytes
	if n := went(2); n != 2 || w.bytes != followersBytes {
		t.Errorf("%d rows went that nothing is kept of, %d bytes are", n, w.bytes)
	}
}

// Whatever is learnt and collected when: a delta names a range once followers have all that it made, no row
// waits longer than its table says, none that waits is further away, and in the end nothing is left.
func TestNothingIsSaidBeforeItsRowsWent(t *testing.T) {
	for seed := range uint64(60) {
		u := &uttered{t: t, r: rand.New(rand.NewPCG(seed, 1)), intervals: map[string]time.Duration{"user": 70 * time.Millisecond, "movie": 400 * time.Millisecond},
			touched: map[string]map[int64]touch{"user": {}, "movie": {}}, has: map[string]map[int64][]float32{"user": {}, "movie": {}}, near: seed%3 > 0}
		change := []func(*model.ModelSpec){syncs(0, u.intervals["user"]), syncs(1, u.intervals["movie"])}
		if u.near {
			u.tolerance = float64(seed % 3 / 2)
			change = append(change, within(0, float32(u.tolerance)), within(1, float32(u.tolerance)))
		}
		u.s = counting(t, change...)
		for range 300 {
			u.step()
		}
		u.collect(time.Time{})
		if n := u.s.Backlog(); n > 0 || u.said != u.next || len(u.s.learnt) > 0 || len(u.touched["user"])+len(u.touched["movie"]) > 0 {
			t.Fatalf("seed %d: %d rows are left, %v, and %d of %d records were said", seed, n, u.touched, u.said, u.next)
		}
		for _, w := range u.s.waiting {
			if w.followers != nil && (len(w.rows) > 0 || w.bytes != 0 || w.held != 0) {
				t.Fatalf("seed %d: %d bytes of %d rows are kept, %d are held", seed, w.bytes, len(w.rows), w.held)
			}
		}
	}
}

// uttered is a shard, and what it should have handed over.
type uttered struct {
	t          *testing.T
	r          *rand.Rand
	s          *Shard
	intervals  map[string]time.Duration
	near       bool // rows wait within tolerance alone
	tolerance  float64
	touched    map[string]map[int64]touch     // table -> rows that followers have not as they are
	has        map[string]map[int64][]float32 // table -> rows as followers have them
	next, said int64
	now        time.Duration
}

// touch is where a row was first moved that waits.
type touch struct {
	offset int64
	due    time.Duration // an interval behind the first collection since; 0: there was none
}

func (u *uttered) step() {
	u.now += time.Duration(u.r.IntN(30)) * time.Millisecond
	switch u.r.IntN(6) {
	case 0:
		u.collect(time.Time{})
	case 1, 2:
		u.collect(time.Unix(1000, 0).Add(u.now))
	default:
		r := pstest.Teach(0, 0, u.next, u.next+1, 0)
		for i, name := range []string{"user", "movie"} {
			g := rowwire.TableGrads{Table: name}
			for id := range int64(6) {
				if u.r.IntN(4) == 0 {
					g.IDs = append(g.IDs, id)
					x := float32(u.r.IntN(5) - 2)
					for range 2 + i {
						g.Grads = append(g.Grads, x)
					}
					if _, waits := u.touched[name][id]; !waits {
						u.touched[name][id] = touch{offset: u.next}
					}
				}
			}
			r.Tables = append(r.Tables, g)
		}
		if _, err := u.s.Apply(u.t.Context(), r, ""); err != nil {
			u.t.Fatal(err)
		}
		u.next++
	}
}

func (u *uttered) collect(at time.Time) {
	h := u.s.CollectDue(at, func(int) bool { return false })
	if h != nil {
		for _, r := range h.Rows {
			for i, id := range r.IDs {
				u.has[r.Table][id] = r.Values[i*r.Dim : (i+1)*r.Dim]
			}
		}
		for _, r := range h.Ranges {
			if r.From != u.said {
				u.t.Fatalf("ranges from %d follow %d", r.From, u.said)
			}
			u.said = r.To
		}
	}
	for name, rows := range u.touched {
		for id, x := range rows {
			is := make([]float32, u.s.dims[name])
			if _, err := u.s.tables[name].Lookup([]int64{id}, is, nil); err != nil {
				u.t.Fatal(err)
			}
			has := u.has[name][id]
			switch {
			case slices.Equal(is, has):
				delete(rows, id)
			case x.offset < u.said:
				u.t.Fatalf("record %d is said to be contained, and row %d of %s, which it moved, did not go", x.offset, id, name)
			case x.due > 0 && u.now >= x.due:
				u.t.Fatalf("row %d of %s waits longer than %v", id, name, u.intervals[name])
			case u.near && (has == nil || math.Abs(float64(is[0]-has[0])) > u.tolerance*math.Abs(float64(has[0]))):
				u.t.Fatalf("row %d of %s waits, is %v, and followers have %v", id, name, is, has)
			case x.due == 0:
				x.due = u.now + u.intervals[name]
				rows[id] = x
			}
		}
	}
}
