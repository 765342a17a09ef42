// Package dense computes towers of fully connected layers, forward and backward, on
// kernels/gemm: written out by hand, it is what compiled programs are compared with, bit by bit.
//
// A layer is y = activation(x W + b), W being [in, out] in row-major order.
//
// What holds for the bits: every output of a layer is one chain of multiply-adds that
// starts from the bias and takes the inputs in order; every gradient of a weight is one
// chain over the batch in order. So a sample's logit does not depend on the batch it is
// computed in, and neither logits nor gradients depend on the pool's threads. They do
// depend on the backend (see gemm.Backends) and on BF16, and the gradients on what is in
// the batch and in which order: a gradient of two halves is not the gradient of the whole
// to the last bit.
package densetest

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/gemm"
	"github.com/monolith-go/monolith/kernels/par"
)

// Activation is what a layer does to x W + b.
type Activation int

// The activations.
const (
	ActLinear  Activation = iota
	ActReLU               // max(0, z); its slope at 0 is 0; NaN stays NaN
	ActSigmoid            // 1 / (1 + exp(-z))
)

// Layer is one layer's shape.
type Layer struct {
	In, Out    int
	Activation Activation
}

// Bounds of a tower; New refuses more.
const (
	MaxLayers = 64
	MaxUnits  = 1 << 16
)

// Tower is immutable and safe for concurrent use, each goroutine with its Workspace.
type Tower struct{ layers []Layer }

// New checks that the layers fit together and that the last has one unit. The last
// activation must be ActSigmoid: Forward stops before it, and SigmoidCrossEntropy takes it
// from there.
func New(layers []Layer) (*Tower, error) {
	if len(layers) == 0 || len(layers) > MaxLayers {
		return nil, fmt.Errorf("dense: %d layers: give 1 to %d", len(layers), MaxLayers)
	}
	for i, l := range layers {
		switch {
		case l.In < 1 || l.In > MaxUnits || l.Out < 1 || l.Out > MaxUnits:
			return nil, fmt.Errorf("dense: layer %d is %d by %d: give 1 to %d each", i, l.In, l.Out, MaxUnits)
		case i > 0 && l.In != layers[i-1].Out:
			return nil, fmt.Errorf("dense: layer %d reads %d values where the layer before gives %d: make them equal", i, l.In, layers[i-1].Out)
		case l.Activation < ActLinear || l.Activation > ActSigmoid:
			return nil, fmt.Errorf("dense: layer %d has the unknown activation %d: use ActLinear, ActReLU or ActSigmoid", i, l.Activation)
		}
	}
	if last := layers[len(layers)-1]; last.Out != 1 || last.Activation != ActSigmoid {
		return nil, fmt.Errorf("dense: the last layer has %d units: a probability needs one unit with activation ActSigmoid", last.Out)
	}
	return &Tower{layers: append([]Layer(nil), layers...)}, nil
}

// In is the number of inputs per sample.
func (t *Tower) In() int { return t.layers[0].In }

// Layers returns a copy of the shapes.
func (t *Tower) Layers() []Layer { return append([]Layer(nil), t.layers...) }

// FLOPs is the floating point operations of one sample, a multiply-add counting two: the
// products of Forward, and those of Forward and Backward with dx together.
func (t *Tower) FLOPs() (forward, both float64) {
	for _, l := range t.layers {
		forward += 2 * float64(l.In) * float64(l.Out)
	}
	return forward, 3 * forward
}

// Workspace keeps what Forward leaves for Backward. It grows to the largest batch seen
// and then allocates no more. The zero value is ready; one goroutine at a time.
type Workspace struct {
	// Pool lends its threads; nil is the calling goroutine alone. It may be changed
	// between calls.
	Pool *par.Pool
	// BF16 multiplies in bfloat16 and adds in float32. Parameters, activations, gradients
	// and biases stay float32. Set it before Forward and leave it until Backward.
	BF16 bool

	tower *Tower
	batch int
	ready bool        // for Backward
	input []float32   // of the last Forward
	x     []float32   // Tower.Forward's copy of it
	acts  [][]float32 // acts[l] is layer l's output, batch x Out; the last are the logits
	dz    []float32   // gradient of the layer at hand before its activation
	dy    []float32   // gradient of its input, the next one's dz
	ones  []float32
	mm    gemm.Workspace
}

// products is what multiplies on the pool as it is now.
func (ws *Workspace) products() *gemm.Workspace {
	ws.mm.Pool = ws.Pool
	return &ws.mm
}

// Forward computes batch samples: x is batch x In(), params are kernel, bias, kernel,
// bias, … of the layers in order. The logits, one per sample, lie in ws until its next
// use. x is copied and may be changed afterwards.
func (t *Tower) Forward(params [][]float32, x []float32, batch int, ws *Workspace) (logits []float32, err error) {
	if err := t.check("parameters", params); err != nil {
		return nil, err
	}
	if err := t.fits(x, batch); err != nil {
		return nil, err
	}
	ws.fit(t, batch)
	ws.x = append(ws.x[:0], x...)
	return t.forward(params, nil, ws.x, ws)
}

func (t *Tower) fits(x []float32, batch int) error {
	if batch < 0 || len(x) != batch*t.In() {
		return fmt.Errorf("dense: %d samples of %d inputs got %d floats: give batch*in", batch, t.In(), len(x))
	}
	return nil
}

// forward reads the kernels from packed where there are any; no Backward follows then.
func (t *Tower) forward(params [][]float32, packed []*gemm.Packed, x []float32, ws *Workspace) ([]float32, error) {
	ws.input, ws.ready = x, false
	for l, layer := range t.layers {
		op := gemm.Op{Alpha: 1, Bias: params[2*l+1], BF16: ws.BF16}
		inner := l < len(t.layers)-1
		if inner && layer.Activation == ActReLU {
			op.Finish = gemm.ReLU
		}
		z, in := gemm.Of(ws.acts[l], ws.batch, layer.Out), gemm.Of(x, ws.batch, layer.In)
		var err error
		if packed != nil {
			err = ws.products().MulPacked(z, in, packed[l], op)
		} else {
			err = ws.products().Mul(z, in, gemm.Of(params[2*l], layer.In, layer.Out), op)
		}
		if err != nil {
			return nil, fmt.Errorf("dense: layer %d: %w", l, err)
		}
		if inner && layer.Activation == ActSigmoid {
			sigmoids(ws.acts[l])
		}
		x = ws.acts[l]
	}
	ws.ready = packed == nil
	return x, nil
}

// Backward goes back through the last Forward of ws, with the same params. dlogits is
// the loss's gradient by logit. grads has the shape of params and is overwritten, dx
// (batch x In(), or nil if unwanted) too.
func (t *Tower) Backward(params [][]float32, ws *Workspace, dlogits []float32, grads [][]float32, dx []float32) error {
	if err := t.check("parameters", params); err != nil {
		return err
	}
	if err := t.check("gradients", grads); err != nil {
		return err
	}
	switch {
	case ws.tower != t || !ws.ready:
		return fmt.Errorf("dense: the workspace holds no forward pass of this tower: call Forward first")
	case len(dlogits) != ws.batch:
		return fmt.Errorf("dense: %d gradients for %d samples: give one per sample of the last Forward", len(dlogits), ws.batch)
	case dx != nil && len(dx) != ws.batch*t.In():
		return fmt.Errorf("dense: room for %d input gradients where the batch has %d: give batch*in, or nil", len(dx), ws.batch*t.In())
	}
	mm, n := ws.products(), ws.batch
	copy(ws.dz, dlogits)
	for l := len(t.layers) - 1; l >= 0; l-- {
		layer := t.layers[l]
		x, dy := ws.input, dx
		if l > 0 {
			x, dy = ws.acts[l-1], ws.dy[:n*layer.In]
		}
		dz := gemm.Of(ws.dz[:n*layer.Out], n, layer.Out)
		in := gemm.Of(x, n, layer.In)
		kernel := gemm.Of(params[2*l], layer.In, layer.Out)
		// A row of ones times dz is the sum of its rows.
		err := mm.Mul(gemm.Of(grads[2*l+1], 1, layer.Out), gemm.Of(ws.ones, 1, n), dz, gemm.Plain)
		if err == nil {
			err = mm.Mul(gemm.Of(grads[2*l], layer.In, layer.Out), in.T(), dz, gemm.Op{Alpha: 1, BF16: ws.BF16})
		}
		if err == nil && dy != nil {
			op := gemm.Op{Alpha: 1, BF16: ws.BF16}
			if l > 0 && t.layers[l-1].Activation == ActReLU {
				op.Finish, op.Mask = gemm.Mask, in
			}
			err = mm.Mul(gemm.Of(dy, n, layer.In), dz, kernel.T(), op)
		}
		if err != nil {
			return fmt.Errorf("dense: layer %d backwards: %w", l, err)
		}
		if l > 0 && t.layers[l-1].Activation == ActSigmoid {
			for i, y := range x {
				dy[i] *= y * (1 - y)
			}
		}
		ws.dz, ws.dy = ws.dy, ws.dz
	}
	return nil
}

func (t *Tower) check(what string, p [][]float32) error {
	if len(p) != 2*len(t.layers) {
		return fmt.Errorf("dense: %d %s for %d layers: give a kernel and a bias per layer", len(p), what, len(t.layers))
	}
	for l, layer := range t.layers {
		if len(p[2*l]) != layer.In*layer.Out || len(p[2*l+1]) != layer.Out {
			return fmt.Errorf("dense: %s of layer %d are %d and %d floats long: a %d by %d layer needs %d and %d", what, l, len(p[2*l]), len(p[2*l+1]), layer.In, layer.Out, layer.In*layer.Out, layer.Out)
		}
	}
	return nil
}

func (ws *Workspace) fit(t *Tower, batch int) {
	if ws.tower != t {
		*ws = Workspace{Pool: ws.Pool, BF16: ws.BF16, tower: t, acts: make([][]float32, len(t.layers))}
	}
	ws.batch, ws.ready = batch, false
	widest := 0
	for l, layer := range t.layers {
		ws.acts[l] = grow(ws.acts[l], batch*layer.Out)
		widest = max(widest, layer.Out)
	}
	ws.dz = grow(ws.dz, batch*widest)
	ws.dy = grow(ws.dy, batch*widest)
	if len(ws.ones) < batch {
		ws.ones = make([]float32, batch)
		for i := range ws.ones {
			ws.ones[i] = 1
		}
	}
}

func grow(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n)
	}
	return s[:n]
}
