package modelserver_test

import (
	"maps"
	"math"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// candidates are a user's rows, which differ in the movie alone.
func candidates(user int64, n int) (rows []viewing) {
	for i := range n {
		rows = append(rows, viewing{user, []int64{3, user, 3}, int64(5 + i), "fr", float32(user), []float32{1, -1}})
	}
	return rows
}

// once are rows as a request has them whose sender gives what all have in common once.
func once(rows []viewing) map[string]*tfserving.TensorProto {
	in := tensors(rows[:1])
	movies := make([]int64, len(rows))
	for i, r := range rows {
		movies[i] = r.movie
	}
	in["movie"] = tfserving.NewInt64(movies)
	return in
}

// What the candidates of a request have in common, given once or in each row, is computed once with the bits
// that each row has by itself, also by callers whose requests join those of others.
func TestCandidatesShareTheirUser(t *testing.T) {
	w := newWorld(t)
	w.listed()
	w.export(1, 2, 0)
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	wait.Until(t, "the first answer", func() error { _, err := s.ask(tensors(candidates(1, 1))); return err })
	type request struct {
		in   map[string]*tfserving.TensorProto
		want map[string][]float32
	}
	var all []request
	for user := range int64(12) {
		rows := candidates(user, []int{1, 2, 40}[user%3])
		want := w.answers(rows)
		if user > 0 && maps.EqualFunc(want, all[0].want, func(a, b []float32) bool { return math.Float32bits(a[0]) == math.Float32bits(b[0]) }) {
			t.Fatalf("users 0 and %d have the same scores: the test would show nothing", user)
		}
		all = append(all, request{tensors(rows), want}, request{once(rows), want})
	}
	joined := func() (n float64) {
		families, err := s.metrics.Gather()
		if err != nil {
			t.Error(err)
		}
		for _, f := range families {
			if f.GetName() == "monolith_modelserver_joined_total" {
				n = f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		return n
	}
	var callers sync.WaitGroup
	for c := range 32 {
		callers.Go(func() {
			for i := range 2000 {
				r := all[(c+i)%len(all)]
				got, err := s.ask(r.in)
				if err == nil {
					err = same(got, r.want)
				}
				if err != nil {
					t.Errorf("request %d of caller %d: %v", i, c, err)
				}
				if err != nil || i >= 20 && joined() > 0 {
					return
				}
			}
		})
	}
	callers.Wait()
	if joined() == 0 {
		t.Error("no request joined another")
	}
}
