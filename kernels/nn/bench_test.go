package nn_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/monolith-go/monolith/kernels/densetest"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

// BenchmarkStep is forwards, loss and backwards of the movie tower and of DeepFM's, by densetest.Tower and by its
// program in turns, with weights that are new in every fourth step. It reports the fastest step of each:
// what else runs on the machine comes to both.
func BenchmarkStep(b *testing.B) {
	deep := []densetest.Layer{{In: 416, Out: 1024, Activation: densetest.ActReLU}, {In: 1024, Out: 256, Activation: densetest.ActReLU}, {In: 256, Out: 32, Activation: densetest.ActReLU}, {In: 32, Out: 1, Activation: densetest.ActSigmoid}}
	for _, m := range []struct {
		name   string
		layers []densetest.Layer
		n      int
	}{{"movies", movies, 16}, {"movies", movies, 512}, {"deep", deep, 512}} {
		for _, count := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s%d/threads%d", m.name, m.n, count), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 1))
				var params, grads [][]float32
				for _, l := range m.layers {
					params = append(params, draw(r, l.In*l.Out, 0.05), draw(r, l.Out, 0.05))
					grads = append(grads, make([]float32, l.In*l.Out), make([]float32, l.Out))
				}
				x, labels := draw(r, m.n*m.layers[0].In, 1), make([]float32, m.n)
				tw, err := densetest.New(m.layers)
				if err != nil {
					b.Fatal(err)
				}
				pool := partest.New(b, count)
				ws, d, dx, scores := &densetest.Workspace{Pool: pool}, make([]float32, m.n), make([]float32, len(x)), make([]float32, m.n)
				tower := func() error {
					logits, err := tw.Forward(params, x, m.n, ws)
					if err != nil {
						return err
					}
					for i, z := range logits {
						scores[i] = densetest.Sigmoid(z)
					}
					densetest.SigmoidCrossEntropy(logits, labels, d)
					for i := range d {
						d[i] *= float32(m.n)
					}
					return tw.Backward(params, ws, d, grads, dx)
				}
				p := compile(b, towerGraph(m.layers, false), nn.Options{})
				lane, w, out, in := &nn.Lane{Pool: pool}, &nn.Weights{Values: params}, &nn.Outputs{}, [][]float32{x, labels}
				step := uint64(0)
				program := func() error {
					if step++; step%4 == 0 {
						w.Reset(step, params)
					}
					return p.Run(lane, m.n, in, w, out)
				}
				fastest := [2][4]time.Duration{} // by place in four steps: the first packs the weights
				turn := 0
				for b.Loop() {
					for i, do := range []func() error{tower, program} {
						began := time.Now()
						if err := do(); err != nil {
							b.Fatal(err)
						}
						if took, best := time.Since(began), &fastest[i][turn%4]; *best == 0 || took < *best {
							*best = took
						}
					}
					turn++
				}
				for i, name := range []string{"dense-us", "nn-us"} {
					sum := time.Duration(0)
					for _, d := range fastest[i] {
						sum += d
					}
					b.ReportMetric(float64(sum.Nanoseconds())/4e3, name)
				}
			})
		}
	}
}
