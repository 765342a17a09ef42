package nn_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/kernels/dense"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/kernels/par"
)

// BenchmarkStep is forwards, loss and backwards of the movie tower and of DeepFM's, by dense.Tower and by its
// program, with weights that are new in every fourth step.
func BenchmarkStep(b *testing.B) {
	deep := []dense.Layer{{In: 416, Out: 1024, Activation: dense.ActReLU}, {In: 1024, Out: 256, Activation: dense.ActReLU}, {In: 256, Out: 32, Activation: dense.ActReLU}, {In: 32, Out: 1, Activation: dense.ActSigmoid}}
	for _, m := range []struct {
		name   string
		layers []dense.Layer
		n      int
	}{{"movies", movies, 16}, {"movies", movies, 512}, {"deep", deep, 512}} {
		r := rand.New(rand.NewPCG(1, 1))
		var params, grads [][]float32
		for _, l := range m.layers {
			params = append(params, draw(r, l.In*l.Out, 0.05), draw(r, l.Out, 0.05))
			grads = append(grads, make([]float32, l.In*l.Out), make([]float32, l.Out))
		}
		x, labels := draw(r, m.n*m.layers[0].In, 1), make([]float32, m.n)
		for _, threads := range []int{1, 2} {
			name := fmt.Sprintf("%s%d/threads%d", m.name, m.n, threads)
			pool := func(b *testing.B) *par.Pool {
				p, err := par.New(threads)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(p.Close)
				return p
			}
			b.Run(name+"/dense", func(b *testing.B) {
				tw, err := dense.New(m.layers)
				if err != nil {
					b.Fatal(err)
				}
				ws, d, dx := &dense.Workspace{Pool: pool(b)}, make([]float32, m.n), make([]float32, len(x))
				scores := make([]float32, m.n)
				for b.Loop() {
					logits, err := tw.Forward(params, x, m.n, ws)
					if err != nil {
						b.Fatal(err)
					}
					for i, z := range logits {
						scores[i] = dense.Sigmoid(z)
					}
					dense.SigmoidCrossEntropy(logits, labels, d)
					for i := range d {
						d[i] *= float32(m.n)
					}
					if err := tw.Backward(params, ws, d, grads, dx); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(name+"/nn", func(b *testing.B) {
				p := compile(b, towerGraph(m.layers, false), nn.Options{})
				lane, w, out := &nn.Lane{Pool: pool(b)}, &nn.Weights{Values: params}, &nn.Outputs{}
				in := [][]float32{x, labels}
				for step := uint64(0); b.Loop(); step++ {
					if step%4 == 0 {
						w.Reset(step, params)
					}
					if err := p.Run(lane, m.n, in, w, out); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
