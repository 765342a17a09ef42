package state

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/ps/pstest"
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

// Whatever is learnt and collected when: a delta names a range once all that it made went, no row
// waits longer than its table says, and in the end nothing is left.
func TestNothingIsSaidBeforeItsRowsWent(t *testing.T) {
	for seed := range uint64(50) {
		u := &uttered{t: t, r: rand.New(rand.NewPCG(seed, 1)), intervals: map[string]time.Duration{"user": 70 * time.Millisecond, "movie": 400 * time.Millisecond},
			touched: map[string]map[int64]touch{"user": {}, "movie": {}}}
		u.s = counting(t, syncs(0, u.intervals["user"]), syncs(1, u.intervals["movie"]))
		for range 300 {
			u.step()
		}
		u.collect(time.Time{})
		if n := u.s.Backlog(); n > 0 || u.said != u.next || len(u.s.learnt) > 0 {
			t.Fatalf("seed %d: %d rows are left, and %d of %d records were said", seed, n, u.said, u.next)
		}
	}
}

// uttered is a shard, and what it should have handed over.
type uttered struct {
	t          *testing.T
	r          *rand.Rand
	s          *Shard
	intervals  map[string]time.Duration
	touched    map[string]map[int64]touch // table -> rows that went not yet
	next, said int64
	now        time.Duration
}

// touch is where a row was first moved that waits.
type touch struct {
	offset int64
	due    time.Duration // first collection behind it
}

func (u *uttered) step() {
	u.now += time.Duration(u.r.IntN(30)) * time.Millisecond
	switch u.r.IntN(6) {
	case 0:
		u.collect(time.Time{})
	case 1, 2:
		u.collect(time.Unix(1000, 0).Add(u.now))
	default:
		var ids [2][]int64
		for i, name := range []string{"user", "movie"} {
			for id := range int64(6) {
				if u.r.IntN(4) == 0 {
					ids[i] = append(ids[i], id)
					if _, waits := u.touched[name][id]; !waits {
						u.touched[name][id] = touch{offset: u.next}
					}
				}
			}
		}
		rate(u.t, u.s, u.next, ids[0], ids[1])
		u.next++
	}
}

func (u *uttered) collect(at time.Time) {
	h := u.s.CollectDue(at, func(int) bool { return false })
	if h != nil {
		for _, r := range h.Rows {
			for _, id := range r.IDs {
				delete(u.touched[r.Table], id)
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
			if x.offset < u.said {
				u.t.Fatalf("record %d is said to be contained, and row %d of %s, which it moved, did not go", x.offset, id, name)
			}
			if x.due == 0 {
				x.due = u.now + u.intervals[name]
				rows[id] = x
			} else if u.now >= x.due {
				u.t.Fatalf("row %d of %s waits longer than %v", id, name, u.intervals[name])
			}
		}
	}
}
