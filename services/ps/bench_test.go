package ps

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// wide is a model whose dense variables and rows of one apply are about those of a DeepFM
// of 26 features in batches of 512.
func wide(b *testing.B) (*state, *rowwire.ApplyRequest) {
	spec := learning()
	for _, units := range []uint32{448, 512, 448} {
		spec.Layers = slices.Insert(spec.Layers, 0, &model.DenseLayer{Name: "l" + string(rune('a'+len(spec.Layers))), Units: units, Activation: model.Activation_RELU})
	}
	spec.Tables[0].Dim = 16
	f, err := newSchema(Config{Job: job, Shards: 1}, spec)
	if err != nil {
		b.Fatal(err)
	}
	s := newState(f)
	if err := s.load(nil); err != nil {
		b.Fatal(err)
	}
	s.resume(1, 0)
	r := &rowwire.ApplyRequest{Job: job, Epoch: 1, RecordUnix: 1, Tables: []rowwire.TableGrads{{Table: "user"}}}
	random := rand.New(rand.NewPCG(1, 1))
	draw := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(random.NormFloat64() * 1e-3)
		}
		return v
	}
	const rows = 13_309
	r.Tables[0].IDs = make([]int64, rows)
	r.Tables[0].Grads = draw(16 * rows)
	for _, v := range modelspec.Variables(spec) {
		r.Dense = append(r.Dense, rowwire.NamedTensor{Name: v.Name, Values: draw(v.Size)})
	}
	return s, r
}

// renew draws the ids of another batch.
func renew(r *rowwire.ApplyRequest, random *rand.Rand) {
	for i := range r.Tables[0].IDs {
		r.Tables[0].IDs[i] = random.Int64N(400_000)
	}
	r.From, r.To = r.To, r.To+512
}

// The parts of an apply of 13,309 rows of 16 and of 461,000 weights, and what publishing
// its rows takes: what touch writes down, collectDirty reads.
func BenchmarkWideApply(b *testing.B) {
	b.Run("check", func(b *testing.B) {
		s, r := wide(b)
		renew(r, rand.New(rand.NewPCG(2, 2)))
		for b.Loop() {
			if err := s.check(r); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, part := range []string{"rows", "dense", "whole"} {
		b.Run(part, func(b *testing.B) {
			s, r := wide(b)
			switch part {
			case "rows":
				r.Dense = nil
			case "dense":
				r.Tables = nil
			}
			random := rand.New(rand.NewPCG(2, 2))
			for b.Loop() {
				b.StopTimer()
				if r.Tables != nil {
					renew(r, random)
				} else {
					r.From, r.To = r.To, r.To+512
				}
				s.collectDirty(func(int) bool { return false })
				b.StartTimer()
				if _, err := s.apply(b.Context(), r, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("collect", func(b *testing.B) {
		s, r := wide(b)
		r.Dense = nil
		random := rand.New(rand.NewPCG(2, 2))
		rows := 0
		for b.Loop() {
			b.StopTimer()
			renew(r, random)
			if _, err := s.apply(b.Context(), r, ""); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			h := s.collectDirty(func(int) bool { return false })
			rows += len(h.rows[0].ids)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
	})
}
