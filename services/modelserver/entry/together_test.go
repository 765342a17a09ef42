package entry

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/process/health"
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
