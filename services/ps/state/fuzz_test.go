package state

import (
	"context"
	"math"
	"testing"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// FuzzApply throws ranges and gradients at a shard: what is refused changes nothing,
// what is applied is applied whole, and nothing panics.
func FuzzApply(f *testing.F) {
	bits := math.Float32bits
	f.Add(int64(0), int64(10), int64(1), int64(2), bits(1), bits(-1), int64(5), uint8(0))
	f.Add(int64(0), int64(10), int64(1), int64(1), bits(9e14), bits(9e14), int64(5), uint8(1))
	f.Add(int64(0), int64(10), int64(1), int64(1), bits(5e14), bits(5e14), int64(5), uint8(1))
	f.Add(int64(0), int64(1), int64(math.MinInt64), int64(2), bits(float32(math.NaN())), bits(float32(math.Inf(1))), int64(-5), uint8(2))
	f.Add(int64(3), int64(2), int64(-7), int64(2), bits(1e38), bits(-1e38), int64(1<<40), uint8(3))
	form, err := newSchema(Config{Job: job, Shards: 1}, pstest.Learning())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, from, to, id1, id2 int64, g1, g2 uint32, unix int64, shape uint8) {
		s := newShard(form)
		if err := s.Load(nil); err != nil {
			t.Fatal(err)
		}
		s.Resume(1, 0)
		a, b := math.Float32frombits(g1), math.Float32frombits(g2)
		r := &rowwire.ApplyRequest{
			Job: job, Epoch: 1, From: from, To: to, RecordUnix: unix,
			Tables: []rowwire.TableGrads{{Table: "user", IDs: []int64{id1, id2}, Grads: []float32{a, 0, b, a}}},
		}
		if shape&1 != 0 {
			r.Tables = append(r.Tables, rowwire.TableGrads{Table: "movie", IDs: []int64{id2}, Grads: []float32{b, a, 0}})
		}
		if shape&2 != 0 {
			r.Dense = []rowwire.NamedTensor{{Name: "out/bias", Values: []float32{a}}}
		}
		before, err := s.Hash()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		res, aerr := s.Apply(ctx, r, "")
		after, err := s.Hash()
		if err != nil {
			t.Fatal(err)
		}
		if aerr != nil {
			if after.Hash != before.Hash || len(after.Next) != 0 || after.Step != 0 {
				t.Fatalf("refused (%v), and yet %+v became %+v", aerr, before, after)
			}
			return
		}
		distinct := uint64(2)
		if id1 == id2 {
			distinct = 1
		}
		if !res.Applied || after.Next[0] != to || after.Step != 1 || after.Rows["user"] != distinct {
			t.Fatalf("applied: %+v, and the shard stands at %+v", res, after)
		}
	})
}
