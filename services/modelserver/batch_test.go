package modelserver_test

import (
	"math"
	"testing"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/modelserver"
)

// A batch within --max-batch is answered also where one lookup cannot hold its rows.
func TestABatchBeyondOneLookup(t *testing.T) {
	const wide = 512
	w := newWorld(t)
	for _, tab := range w.spec.Tables {
		tab.Dim = wide
	}
	w.dense = map[string][]float32{}
	for _, v := range modelspec.Variables(w.spec) {
		w.dense[v.Name] = modelspec.InitVariable(w.spec, v)
	}
	const n = rowwire.MaxFrame/8/wide + 500
	w.rows = map[string]map[int64][]float32{"user": {}, "movie": {}}
	row := func(seed int64) []float32 {
		r := make([]float32, wide)
		for i := range r {
			r[i] = float32((seed+int64(i)*7)%11-5) / 16
		}
		return r
	}
	var users, movies []int64
	for id := range int64(n) {
		w.rows["user"][modelspec.FID(1, id)] = row(id)
		users, movies = append(users, n-1-id), append(movies, id%3)
	}
	for id := range int64(3) {
		w.rows["movie"][modelspec.FID(2, id)] = row(id)
	}
	w.exportDim = wide
	w.export(1, 1, 0)
	s, subs := w.one(1, func(c *modelserver.Config) { c.MaxBatch = 1 << 16 })
	s.mustLoad(1, subs...)
	wait.Until(t, "the batch", func() error { return s.check(users[:5], movies[:5]) })
	got, err := s.scores(users, movies)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < n; i += 211 {
		if want := w.score(users[i], movies[i]); math.Abs(float64(got[i]-want)) > 1e-5 {
			t.Fatalf("row %d: score %v, want %v", i, got[i], want)
		}
	}
}
