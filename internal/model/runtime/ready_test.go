package runtime

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// readyModels are the files that the guide offers, by name.
func readyModels(t *testing.T) map[string]*model.ModelSpec {
	t.Helper()
	files, err := filepath.Glob("../../../docs/models/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("ready models: %v, %v", files, err)
	}
	all := map[string]*model.ModelSpec{}
	for _, file := range files {
		spec, err := modelspec.ReadFile(file, nil)
		if err == nil {
			err = modelspec.Trainable(spec)
		}
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = spec
	}
	return all
}

// Each ready model learns who likes what, from rows and variables as a new job has them.
func TestReadyModelsLearn(t *testing.T) {
	for name, spec := range readyModels(t) {
		t.Run(name, func(t *testing.T) {
			e := engineOf(t, spec, 2, 64)
			rows, values := map[int64][]float32{}, [][]float32{}
			for _, v := range e.Variables() {
				values = append(values, modelspec.InitVariable(spec, v))
			}
			rng, b, l := rand.New(rand.NewPCG(1, 2)), e.NewBatch(), &Lane{}
			var first, last float64
			const steps = 400
			for step := range steps {
				b.Reset()
				for range 64 {
					user, movie := rng.Int64N(20), rng.Int64N(20)
					label := float32(0)
					if (user+movie)%3 == 0 || user%5 == 0 {
						label = 1
					}
					if err := b.Add([]int64{modelspec.FID(1, user), modelspec.FID(2, movie)}, label); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.Seal(); err != nil {
					t.Fatal(err)
				}
				each(e, b, func(id int64, row, _ []float32) {
					if rows[id] == nil {
						rows[id] = make([]float32, len(row))
						for i := range row {
							rows[id][i] = (rng.Float32() - 0.5) / 5
						}
					}
					copy(row, rows[id])
				})
				w, err := e.Weights(uint64(step), values)
				if err != nil {
					t.Fatal(err)
				}
				r, err := e.Train(l, b, w)
				if err != nil {
					t.Fatal(err)
				}
				if step < steps/10 {
					first += r.Loss
				} else if step >= steps-steps/10 {
					last += r.Loss
				}
				each(e, b, func(id int64, _, grad []float32) {
					for i, g := range grad {
						rows[id][i] -= 0.05 * g
					}
				})
				next := make([][]float32, len(values)) // a version never changes
				for i, v := range values {
					next[i] = append([]float32(nil), v...)
					for k, g := range b.Dense[i] {
						next[i][k] -= 0.005 * g
					}
				}
				values = next
			}
			t.Logf("loss of a batch: %.3f, at last %.3f", first/(steps/10), last/(steps/10))
			if !(last < 0.9*first) {
				t.Errorf("the loss goes from %g to %g", first, last)
			}
		})
	}
}

// each calls f for each row of a batch.
func each(e *Engine, b *Batch, f func(id int64, row, grad []float32)) {
	for shard := range e.shards {
		for _, block := range b.Blocks(shard) {
			for i, id := range block.IDs {
				var grad []float32
				if block.Grads != nil {
					grad = block.Grads[i*block.Dim:][:block.Dim]
				}
				f(id, block.Rows[i*block.Dim:][:block.Dim], grad)
			}
		}
	}
}

// The gradients of a ready model are those of its loss: finite differences by some numbers of
// rows and variables.
func TestGradientsOfReadyModels(t *testing.T) {
	for name, spec := range readyModels(t) {
		t.Run(name, func(t *testing.T) {
			e := engineOf(t, spec, 2, 8)
			w, b, l := weightsOf(t, e), e.NewBatch(), &Lane{}
			draw(rand.New(rand.NewPCG(5, 6)), spec, 8).into(t, b)
			fill := func() {
				each(e, b, func(id int64, row, _ []float32) { copy(row, rowOf(id, len(row))) })
			}
			loss := func(w *Weights) float64 {
				r, err := e.Train(l, b, w)
				if err != nil {
					t.Fatal(err)
				}
				return r.Loss
			}
			const h = 1.0 / 4096
			close := func(what string, got float32, up, down float64) {
				t.Helper()
				if want := (up - down) / (2 * h); float64(got)-want > 2e-2 || want-float64(got) > 2e-2 {
					t.Errorf("%s: %g, by differences %g", what, got, want)
				}
			}
			fill()
			loss(w)
			for i, v := range e.Variables() {
				for _, k := range []int{0, v.Size / 2, v.Size - 1} {
					got := append([]float32(nil), b.Dense[i]...)[k]
					moved := func(by float32) float64 {
						values := make([][]float32, len(w.Values))
						for j := range values {
							values[j] = append([]float32(nil), w.Values[j]...)
						}
						values[i][k] += by
						other, err := e.Weights(2, values)
						if err != nil {
							t.Fatal(err)
						}
						return loss(other)
					}
					up, down := moved(h), moved(-h)
					close(v.Name, got, up, down)
					loss(w)
				}
			}
			block := &b.Blocks(0)[0]
			for k := range block.Dim {
				fill()
				loss(w)
				got, at := block.Grads[k], block.Rows[k]
				block.Rows[k] = at + h
				up := loss(w)
				block.Rows[k] = at - h
				down := loss(w)
				block.Rows[k] = at
				close("a row", got, up, down)
			}
		})
	}
}
