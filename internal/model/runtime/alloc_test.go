//go:build !race

package runtime

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/par"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

// Once a batch of its size was seen, a step allocates nothing; nor does scoring, of samples each by itself or of a
// user's candidates. Of every ready model, in every precision.
func TestAStepAllocatesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	plain := func(n int) (all []Sample) {
		s := draw(rng, wide(), n)
		for i, ids := range s.ids {
			all = append(all, one(ids, s.labels[i]))
		}
		return all
	}
	type engineCase struct {
		name         string
		e            *Engine
		large, small []Sample
		pool         *par.Pool
	}
	cases := []engineCase{
		{"one id each", engineOf(t, wide(), 3, 64), plain(64), plain(9), nil},
		{"several ids, floats, tasks", engineOf(t, rich(), 3, 64), drawRich(rng, 64), drawRich(rng, 9), nil},
		{"rows laid out by many threads", engineOf(t, wide(), 3, many), plain(many), plain(9), partest.New(t, 2)},
	}
	for name, spec := range readyModels(t) {
		for _, compute := range []model.ModelSpec_Compute{model.ModelSpec_FP32, model.ModelSpec_BF16, model.ModelSpec_INT8} {
			spec := proto.CloneOf(spec)
			if spec.ServingCompute = compute; compute == model.ModelSpec_BF16 {
				spec.Compute = compute
			}
			user := func(f *model.Feature) bool { return f.Field != "movieId" }
			cases = append(cases, engineCase{name + "/" + compute.String(), engineOf(t, spec, 3, 64), candidates(rng, spec, 64, user), candidates(rng, spec, 9, user), nil})
		}
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			e := tc.e
			b, l, w := e.NewBatch(), &Lane{Pool: tc.pool}, weightsOf(t, e)
			scores := make([][]float32, len(e.Tasks()))
			score := func() {
				for i := range scores {
					scores[i] = scores[i][:0]
				}
				var err error
				if scores, err = e.Score(l, b, w, scores); err != nil {
					t.Fatal(err)
				}
			}
			step := func(all []Sample) {
				b.Reset()
				for _, s := range all {
					if err := b.Add(s); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.Seal(); err != nil {
					t.Fatal(err)
				}
				fillRows(b, 3)
				if _, err := e.Train(l, b, w); err != nil {
					t.Fatal(err)
				}
				score()
				if err := b.SealToScore(); err != nil {
					t.Fatal(err)
				}
				fillRows(b, 3)
				score()
			}
			step(tc.large)
			if n := testing.AllocsPerRun(20, func() { step(tc.small); step(tc.large) }); n > 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

// fillRows gives every row that a batch looks up the same numbers.
func fillRows(b *Batch, shards int) {
	for shard := range shards {
		for _, block := range b.Blocks(shard) {
			for i := range block.Rows {
				block.Rows[i] = 0.25
			}
		}
	}
}
