package entry

import (
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// Requests that are computed together are answered as each by itself, and leave impressions of their own
// rows.
func TestTogetherIsAsAlone(t *testing.T) {
	s, m := &Scorer{Rows: asking(t, 1), MaxBatch: 4}, newEntry(t)
	to := NewImpressions("p", "c", nil, slog.New(slog.DiscardHandler), health.New().Attempts("impressions"))
	jobs := func() (all []*job) {
		for i, users := range [][]int64{{1, 2}, {3}, {4, 5, 6}, {7, 8}, {9}} {
			movies := slices.Repeat([]int64{int64(i)}, len(users))
			if i == 3 {
				movies[0] = 5 // its rows have nothing in common
			}
			in := Input{Tensors: map[string]*tfserving.TensorProto{"user": tfserving.NewInt64(users), "movie": tfserving.NewInt64(movies)}}
			sc := m.scratches.Get().(*scratch)
			if err := sc.load(m, in, 4); err != nil {
				t.Fatal(err)
			}
			all = append(all, &job{ctx: t.Context(), in: in, scratch: sc, done: make(chan struct{})})
		}
		return all
	}
	alone, together := jobs(), jobs()
	for _, j := range alone {
		s.alone(t.Context(), m, j)
	}
	together[2].rec = to.Want("r", true, "", 0)
	s.together(t.Context(), m, together)
	for i := range alone {
		if together[i].err != nil || alone[i].err != nil || !slices.Equal(together[i].scores[0], alone[i].scores[0]) {
			t.Errorf("request %d: %v, %v; alone %v, %v", i, together[i].scores, together[i].err, alone[i].scores, alone[i].err)
		}
	}
	if len(to.queue) != 3 {
		t.Fatalf("%d impressions, want 3", len(to.queue))
	}
	for row := range 3 {
		got := <-to.queue
		if got.Row != row || got.Inputs["user"][0] != int64(4+row) || got.Inputs["movie"][0] != 2 || got.Score != alone[2].scores[0][row] {
			t.Errorf("impression %d: %+v", row, got)
		}
	}
	one := jobs()[:1]
	s.together(t.Context(), m, one)
	if one[0].err != nil || !slices.Equal(one[0].scores[0], alone[0].scores[0]) {
		t.Errorf("one: %v, %v", one[0].scores, one[0].err)
	}
}

// Requests that are computed with others are counted where somebody counts them, and no others are.
func TestJoinedRequestsAreCounted(t *testing.T) {
	s, m := &Scorer{Rows: asking(t, 1), MaxBatch: 4}, newEntry(t)
	in := Input{Tensors: map[string]*tfserving.TensorProto{"user": tfserving.NewInt64([]int64{1}), "movie": tfserving.NewInt64([]int64{2})}}
	answer := func() {
		if _, _, err := s.Answer(t.Context(), []*Model{m}, in, nil); err != nil {
			t.Error(err)
		}
	}
	// join has so many requests wait until one that is computed is over.
	join := func(requests int) {
		t.Helper()
		m.joiner.mu.Lock()
		m.joiner.busy = Slots(s.Lanes)
		m.joiner.mu.Unlock()
		var callers sync.WaitGroup
		for range requests {
			callers.Go(answer)
		}
		wait.For(t, "the requests to wait", func() bool {
			m.joiner.mu.Lock()
			defer m.joiner.mu.Unlock()
			return len(m.joiner.waiting) == requests
		})
		m.joiner.pass()
		callers.Wait()
		m.joiner.mu.Lock()
		m.joiner.busy = 0
		m.joiner.mu.Unlock()
	}
	join(2) // and nobody counts
	s.Joined = prometheus.NewCounter(prometheus.CounterOpts{Name: "joined"})
	for _, requests := range []struct{ waiting, counted int }{{0, 0}, {1, 0}, {3, 3}, {2, 5}} {
		if requests.waiting == 0 {
			answer()
		} else {
			join(requests.waiting)
		}
		if got := testutil.ToFloat64(s.Joined); got != float64(requests.counted) {
			t.Errorf("after %d that waited together %v are counted, want %d", requests.waiting, got, requests.counted)
		}
	}
}
