package runtime

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
)

// regularized is narrow with losses of its first layer's variables and values.
func regularized(reduction model.ModelSpec_Reduction) (plain, with *model.ModelSpec) {
	plain = proto.CloneOf(narrow())
	plain.Reduction = reduction
	with = proto.CloneOf(plain)
	with.Layers[0].KernelRegularizer = &model.Regularizer{L1: 0.25, L2: 0.5}
	with.Layers[0].BiasRegularizer = &model.Regularizer{L2: 2}
	with.Layers[0].ActivityRegularizer = &model.Regularizer{L1: 0.125}
	return plain, with
}

// What layers add to the loss is told by name, and moves the gradients by the derivative of what it is; scores
// and the tasks' losses have the bits that they have without it.
func TestLossesOfLayers(t *testing.T) {
	for _, reduction := range []model.ModelSpec_Reduction{model.ModelSpec_SUM, model.ModelSpec_MEAN} {
		t.Run(reduction.String(), func(t *testing.T) {
			const samples = 16
			plain, with := regularized(reduction)
			s := draw(rand.New(rand.NewPCG(4, 2)), plain, samples)
			var results []Result
			var dense [][][]float32
			var weights *Weights
			for _, spec := range []*model.ModelSpec{plain, with} {
				e := engineOf(t, spec, 2, samples)
				weights = weightsOf(t, e)
				b := e.NewBatch()
				s.into(t, b)
				lookUp(b)
				r, err := e.Train(&Lane{}, b, weights)
				if err != nil {
					t.Fatal(err)
				}
				results, dense = append(results, r), append(dense, b.Dense)
			}
			a, b := results[0], results[1]
			if !slices.Equal(bitsOf(a.Scores[0]), bitsOf(b.Scores[0])) || a.Losses[0] != b.Losses[0] || len(a.Added) > 0 {
				t.Errorf("%+v, without losses of layers %+v", b, a)
			}
			once := 1.0
			if reduction == model.ModelSpec_MEAN {
				once = samples // as the loss is told summed over the samples
			}
			kernel, bias := 0.0, 0.0
			for _, w := range weights.Values[0] {
				kernel += 0.25*math.Abs(float64(w)) + 0.5*float64(w)*float64(w)
			}
			for _, w := range weights.Values[1] {
				bias += 2 * float64(w) * float64(w)
			}
			if len(b.Added) != 3 || !near(float32(b.Added[0].Loss), once*kernel) || !near(float32(b.Added[1].Loss), once*bias) || !(b.Added[2].Loss > 0) {
				t.Fatalf("%+v, want %g and %g, each %g times", b.Added, kernel, bias, once)
			}
			if sum := a.Loss + b.Added[0].Loss + b.Added[1].Loss + b.Added[2].Loss; !near(float32(b.Loss), sum) {
				t.Errorf("a loss of %g, want %g", b.Loss, sum)
			}
			if b.Added[0].Name != with.Layers[0].Name+"/kernel" || b.Added[1].Name != with.Layers[0].Name+"/bias" || b.Added[2].Name != with.Layers[0].Name+"/activity" {
				t.Errorf("%+v", b.Added)
			}
			for i := range dense[0][1] { // of biases, which the activity moves too
				if dense[0][1][i] == dense[1][1][i] {
					t.Errorf("the gradient by bias %d is %g, as without", i, dense[1][1][i])
				}
			}
			last := len(dense[0]) - 1
			if !slices.Equal(bitsOf(dense[0][last]), bitsOf(dense[1][last])) {
				t.Error("the gradient by the last bias is another, though nothing is added behind the first layer")
			}
		})
	}
}

// The gradients are those of the loss that is told, by differences.
func TestGradientsOfLossesOfLayers(t *testing.T) {
	_, spec := regularized(model.ModelSpec_SUM)
	e := engineOf(t, spec, 1, 8)
	b, l := e.NewBatch(), &Lane{}
	draw(rand.New(rand.NewPCG(5, 5)), spec, 8).into(t, b)
	lookUp(b)
	w := weightsOf(t, e)
	for k := range w.Values[1] {
		w.Values[1][k] = float32(k+1) / 16
	}
	loss := func() float64 {
		made, err := e.Weights(1, w.Values)
		if err != nil {
			t.Fatal(err)
		}
		r, err := e.Train(l, b, made)
		if err != nil {
			t.Fatal(err)
		}
		return r.Loss
	}
	for i, v := range e.Variables() {
		for k := 0; k < v.Size; k += 1 + v.Size/7 {
			const h = 1.0 / 1024
			loss()
			got, old := float64(b.Dense[i][k]), w.Values[i][k]
			w.Values[i][k] = old + h
			up := loss()
			w.Values[i][k] = old - h
			down := loss()
			w.Values[i][k] = old
			if want := (up - down) / (2 * h); math.Abs(got-want) > 1e-2*(1+math.Abs(want)) {
				t.Errorf("%s[%d]: %g, by differences %g", v.Name, k, got, want)
			}
		}
	}
}
