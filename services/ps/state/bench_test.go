package state

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// wide is a shard of a model of many weights, and an apply to it.
func wide(b *testing.B) (*Shard, *rowwire.ApplyRequest) {
	spec, r := pstest.Wide()
	s, err := New(Config{Job: job, Shards: 1}, spec)
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Load(nil); err != nil {
		b.Fatal(err)
	}
	s.Resume(1, 0)
	return s, r
}

// The parts of an apply of 13,309 rows of 16 and of 461,000 weights, and what publishing
// its rows takes: what touch writes down, CollectDirty reads.
func BenchmarkWideApply(b *testing.B) {
	b.Run("check", func(b *testing.B) {
		s, r := wide(b)
		pstest.Renew(r, rand.New(rand.NewPCG(2, 2)))
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
					pstest.Renew(r, random)
				} else {
					r.From, r.To = r.To, r.To+512
				}
				s.CollectDirty(func(int) bool { return false })
				b.StartTimer()
				if _, err := s.Apply(b.Context(), r, ""); err != nil {
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
			pstest.Renew(r, random)
			if _, err := s.Apply(b.Context(), r, ""); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			h := s.CollectDirty(func(int) bool { return false })
			rows += len(h.Rows[0].IDs)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
	})
}

// BenchmarkApply is one range with 2,000 rows of 2 floats, without the wire.
func BenchmarkApply(b *testing.B) {
	form, err := newSchema(Config{Job: job, Shards: 1}, pstest.Learning())
	if err != nil {
		b.Fatal(err)
	}
	s := newShard(form)
	if err := s.Load(nil); err != nil {
		b.Fatal(err)
	}
	s.Resume(1, 0)
	ids, grads := make([]int64, 2000), make([]float32, 4000)
	for i := range ids {
		ids[i] = int64(i)
	}
	r := &rowwire.ApplyRequest{Job: job, Epoch: 1, Tables: []rowwire.TableGrads{{Table: "user", IDs: ids, Grads: grads}}}
	for b.Loop() {
		r.From, r.To = r.To, r.To+1
		if _, err := s.Apply(context.Background(), r, ""); err != nil {
			b.Fatal(err)
		}
	}
}
