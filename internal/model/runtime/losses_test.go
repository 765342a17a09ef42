package runtime

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/events/model"
)

// towers is two embeddings whose inner product is learnt by a loss over the batch.
func towers(loss model.Task_Loss) *model.ModelSpec {
	spec := narrow()
	spec.Outputs = []*model.Output{{Name: "u", Slices: []string{"user"}}, {Name: "m", Slices: []string{"movie"}}}
	spec.Layers = []*model.DenseLayer{{Name: "match", Inputs: []string{"u", "m"}, Kind: &model.DenseLayer_Dot{Dot: &model.Dot{}}}}
	spec.Tasks = []*model.Task{{Name: "match", Logit: "match", Loss: loss}}
	if loss == model.Task_IN_BATCH_SOFTMAX {
		spec.Label = nil
	}
	return spec
}

// The losses that compare the samples of a batch are those of a plain loop over all pairs, and so are
// the gradients of rows, by finite differences of that loop.
func TestLossesOfPairs(t *testing.T) {
	for loss, plain := range map[model.Task_Loss]func(dot func(i, j int) float64, labels []float32) float64{
		model.Task_IN_BATCH_SOFTMAX: func(dot func(i, j int) float64, labels []float32) (sum float64) {
			for i := range labels {
				all := 0.0
				for j := range labels {
					all += math.Exp(dot(i, j))
				}
				sum += math.Log(all) - dot(i, i)
			}
			return sum / float64(len(labels))
		},
		model.Task_IN_BATCH_AUC: func(dot func(i, j int) float64, labels []float32) (sum float64) {
			pairs := 0.0
			for p := range labels {
				for q := range labels {
					if labels[p] > 0.5 && labels[q] <= 0.5 {
						sum += math.Log1p(math.Exp(dot(q, q) - dot(p, p)))
						pairs++
					}
				}
			}
			return sum / pairs
		},
	} {
		t.Run(loss.String(), func(t *testing.T) {
			spec := towers(loss)
			e := engineOf(t, spec, 2, 16)
			s := draw(rand.New(rand.NewPCG(3, 9)), spec, 16)
			b, l := e.NewBatch(), e.NewLane()
			s.into(t, b)
			lookUp(b)
			w, err := e.Weights(1, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Train(l, b, w)
			if err != nil {
				t.Fatal(err)
			}
			rows := map[int64][]float64{}
			for _, ids := range s.ids {
				for _, id := range ids {
					if rows[id] == nil {
						for _, v := range rowOf(id, 4) {
							rows[id] = append(rows[id], float64(v))
						}
					}
				}
			}
			want := func() float64 {
				return plain(func(i, j int) (sum float64) {
					for k, v := range rows[s.ids[i][0]] {
						sum += v * rows[s.ids[j][1]][k]
					}
					return sum
				}, s.labels)
			}
			n := float64(len(s.ids))
			if !near(float32(got.Loss/n), want()) || got.Losses[0] != got.Loss {
				t.Errorf("the loss is %g by task %v, want %g", got.Loss/n, got.Losses, want())
			}
			each(e, b, func(id int64, _, grad []float32) {
				for k := range grad {
					const h = 1e-5
					rows[id][k] += h
					up := want()
					rows[id][k] -= 2 * h
					down := want()
					rows[id][k] += h
					if slope := n * (up - down) / (2 * h); !near(grad[k], slope) {
						t.Errorf("row %#x has the gradient %g at %d, by differences %g", id, grad[k], k, slope)
					}
				}
			})
		})
	}
}

// A mean over the batch scales gradients, and not the loss that is told.
func TestAMeanIsASumOverSamples(t *testing.T) {
	spec := rich()
	mean := rich()
	mean.Reduction = model.ModelSpec_MEAN
	all := drawRich(rand.New(rand.NewPCG(8, 1)), 32)
	var results [2]Result
	var grads [2]map[rowKey][]float32
	for i, spec := range []*model.ModelSpec{spec, mean} {
		e := engineOf(t, spec, 1, 32)
		b := e.NewBatch()
		for _, s := range all {
			if err := b.Add(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Seal(); err != nil {
			t.Fatal(err)
		}
		lookUp(b)
		var err error
		if results[i], err = e.Train(e.NewLane(), b, weightsOf(t, e)); err != nil {
			t.Fatal(err)
		}
		grads[i] = map[rowKey][]float32{}
		for _, block := range b.Blocks(0) {
			for k, id := range block.IDs {
				grads[i][rowKey{block.Table, id}] = block.Grads[k*block.Dim:][:block.Dim]
			}
		}
	}
	if results[0].Loss != results[1].Loss {
		t.Errorf("losses %g and %g", results[0].Loss, results[1].Loss)
	}
	for key, sum := range grads[0] {
		for k := range sum {
			if !near(32*grads[1][key][k], float64(sum[k])) {
				t.Errorf("row %v: %g and %g", key, sum[k], grads[1][key][k])
			}
		}
	}
}
