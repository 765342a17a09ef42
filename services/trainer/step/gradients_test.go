package step

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// tried is a step of some records, run again and again with the numbers that it reads.
type tried struct {
	t      *testing.T
	e      *Engine
	recs   []kafka.Record
	rng    *rand.Rand
	params [][]float32         // by variable
	rows   map[int64][]float32 // by id, 4 numbers each
}

func newTried(t *testing.T) *tried {
	e, err := New(trainertest.SmallSpec(), 3, 16)
	if err != nil {
		t.Fatal(err)
	}
	x := &tried{t: t, e: e, rng: rand.New(rand.NewPCG(1, 2)), rows: map[int64][]float32{}}
	for i, v := range []string{
		`{"userId":1,"movieId":5,"rating":5}`, `{"userId":1,"movieId":6,"rating":1}`, `broken`,
		`{"userId":2,"movieId":5,"rating":4}`, `{"userId":1,"movieId":5,"rating":2}`,
	} {
		x.recs = append(x.recs, kafka.Record{Offset: int64(i), Value: []byte(v), Time: time.Unix(int64(100-i), 0)})
	}
	for _, v := range e.Variables() {
		numbers := make([]float32, v.Size)
		for j := range numbers {
			numbers[j] = x.rng.Float32() - 0.5
		}
		x.params = append(x.params, numbers)
	}
	return x
}

// run returns the step and its loss.
func (x *tried) run() (*Step, float64) {
	t, e := x.t, x.e
	s := e.NewStep()
	if err := s.Load(Span{Recs: x.recs}); err != nil {
		t.Fatal(err)
	}
	for shard := range 3 {
		for _, b := range s.Batch.Blocks(shard) {
			for i, id := range b.IDs {
				if x.rows[id] == nil {
					x.rows[id] = []float32{x.rng.Float32(), x.rng.Float32() - 1, x.rng.Float32(), x.rng.Float32() - 1}
				}
				copy(b.Rows[i*4:], x.rows[id])
			}
		}
	}
	w, err := e.Weights(0, x.params)
	if err != nil {
		t.Fatal(err)
	}
	res, err := e.Train(&runtime.Lane{}, s.Batch, w)
	if err != nil {
		t.Fatal(err)
	}
	return s, res.Loss
}

// told is what the shards are told of a step: the gradients of rows by id, and of variables by name.
func told(t *testing.T, s *Step) (rows map[int64][]float32, dense map[string][]float32) {
	t.Helper()
	rows, dense = map[int64][]float32{}, map[string][]float32{}
	for shard := range 3 {
		r := s.Tells(shard, rowwire.ApplyRequest{})[0]
		for _, tb := range r.Tables {
			for i, id := range tb.IDs {
				if rows[id] != nil || modelspec.ShardOf(id, 3) != shard {
					t.Errorf("id %d goes to shard %d", id, shard)
				}
				rows[id] = slices.Clone(tb.Grads[i*4 : i*4+4])
			}
		}
		for _, d := range r.Dense {
			dense[d.Name] = slices.Clone(d.Values)
		}
	}
	return rows, dense
}

// The gradients of a step must be those of the summed loss: compare with differences.
func TestGradients(t *testing.T) {
	x := newTried(t)
	s, _ := x.run()
	if len(s.Bad) != 1 || s.Bad[0].Record.Offset != 2 || s.Samples() != 4 || s.Newest != 100 {
		t.Fatalf("%d bad, %d samples, newest %d", len(s.Bad), s.Samples(), s.Newest)
	}
	got, dense := told(t, s)
	if len(got) != 4 || len(dense) != len(x.e.Variables()) {
		t.Fatalf("%d rows and %d variables got gradients", len(got), len(dense))
	}
	const h = 1e-2
	slope := func(number *float32) float64 {
		was := *number
		*number = was + h
		_, up := x.run()
		*number = was - h
		_, down := x.run()
		*number = was
		return (up - down) / (2 * h)
	}
	check := func(what string, got float32, number *float32) {
		if want := slope(number); math.Abs(float64(got)-want) > 2e-3+0.03*math.Abs(want) {
			t.Errorf("%s: gradient %g, slope %g", what, got, want)
		}
	}
	for id, row := range x.rows {
		for i := range row {
			check("row", got[id][i], &row[i])
		}
	}
	for i, v := range x.e.Variables() {
		for j := 0; j < v.Size; j += 5 {
			check(v.Name, dense[v.Name][j], &x.params[i][j])
		}
	}
}
