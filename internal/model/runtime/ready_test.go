package runtime

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/testenv/planted"
)

// readyModels are the files that the guide offers, by name.
func readyModels(t testing.TB) map[string]*model.ModelSpec {
	t.Helper()
	files, err := filepath.Glob("../../../docs/models/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("ready models: %v, %v", files, err)
	}
	all := map[string]*model.ModelSpec{}
	for _, file := range files {
		spec, err := specfile.Read(file, nil)
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

// plantedSample is a rating as a sample of a ready model.
func plantedSample(spec *model.ModelSpec, x planted.Rating) (s Sample) {
	for _, f := range spec.Features {
		var ids []int64
		for _, id := range x.IDs(f.Field) {
			ids = append(ids, modelspec.FID(f.Slot, id))
		}
		s.IDs = append(s.IDs, ids)
	}
	for _, task := range spec.Tasks {
		l := task.Label
		if l == nil {
			l = spec.Label
		}
		s.Labels = append(s.Labels, modelspec.Labelled(l, x.Stars))
	}
	return s
}

// learner has the rows and variables of a model, and applies Adagrad.
type learner struct {
	rng          *rand.Rand
	rows, sums   map[int64][]float32
	values, past [][]float32
}

func adagrad(x, sum, grad []float32) {
	for i, g := range grad {
		sum[i] += g * g
		x[i] -= 0.05 * g / float32(math.Sqrt(float64(sum[i])))
	}
}

func filled(n int, v float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = v
	}
	return x
}

// look fills a batch's rows.
func (a *learner) look(e *Engine, b *Batch) {
	each(e, b, func(id int64, row, _ []float32) {
		if a.rows[id] == nil {
			a.rows[id], a.sums[id] = make([]float32, len(row)), filled(len(row), 0.1)
			for i := range row {
				a.rows[id][i] = (a.rng.Float32() - 0.5) / 10
			}
		}
		copy(row, a.rows[id])
	})
}

// apply changes rows and variables; a version never changes.
func (a *learner) apply(e *Engine, b *Batch) {
	each(e, b, func(id int64, _, grad []float32) { adagrad(a.rows[id], a.sums[id], grad) })
	next := make([][]float32, len(a.values))
	for i, v := range a.values {
		next[i] = slices.Clone(v)
		adagrad(next[i], a.past[i], b.Dense[i])
	}
	a.values = next
}

// Each ready model learns a rule that biases cannot, from rows and variables as a new job has them.
func TestReadyModelsLearn(t *testing.T) {
	for name, spec := range readyModels(t) {
		t.Run(name, func(t *testing.T) {
			const samples, steps, asked = 32, 600, 1000
			e := engineOf(t, spec, 2, asked)
			a := &learner{rng: rand.New(rand.NewPCG(1, 2)), rows: map[int64][]float32{}, sums: map[int64][]float32{}}
			for _, v := range e.Variables() {
				a.values, a.past = append(a.values, modelspec.InitVariable(spec, v)), append(a.past, filled(v.Size, 0.1))
			}
			b, l := e.NewBatch(), &Lane{}
			fill := func(n int) (labels [][]bool) {
				b.Reset()
				labels = make([][]bool, len(spec.Tasks))
				for range n {
					s := plantedSample(spec, planted.Draw(a.rng, name))
					for i, y := range s.Labels {
						labels[i] = append(labels[i], y == 1)
					}
					if err := b.Add(s); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.Seal(); err != nil {
					t.Fatal(err)
				}
				a.look(e, b)
				return labels
			}
			for step := range steps {
				fill(samples)
				w, err := e.Weights(uint64(step), a.values)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := e.Train(l, b, w); err != nil {
					t.Fatal(err)
				}
				a.apply(e, b)
			}
			labels := fill(asked)
			w, err := e.Weights(steps, a.values)
			if err != nil {
				t.Fatal(err)
			}
			scores, err := e.Score(l, b, w, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, task := range spec.Tasks {
				var of []float64
				for _, s := range scores[i] {
					of = append(of, float64(s))
				}
				auc := eval.AUC(of, labels[i])
				t.Logf("AUC of %s: %.3f", task.Name, auc)
				if !(auc > 0.75) {
					t.Errorf("after %d samples task %s has the AUC %.3f", steps*samples, task.Name, auc)
				}
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
			rng := rand.New(rand.NewPCG(5, 6))
			for range 8 {
				if err := b.Add(plantedSample(spec, planted.Draw(rng, name))); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Seal(); err != nil {
				t.Fatal(err)
			}
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
