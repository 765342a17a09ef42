// Package dense computes a tower of fully connected layers, forward and backward, on one
// goroutine.
//
// A layer is y = activation(x W + b), W being [in, out] in row-major order. The loops run
// over rows of W (y += x[i] * W[i,:]), so memory is read in the order it lies. A
// sample's logit does not depend on the batch it is computed in.
package dense

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/vec"
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

// Workspace keeps what Forward leaves for Backward. It grows to the largest batch seen
// and then allocates no more. The zero value is ready; one goroutine at a time.
type Workspace struct {
	tower *Tower
	batch int
	acts  [][]float32 // acts[l] is layer l's input, batch x In; the last are the logits
	dz    []float32   // gradient of the layer at hand before its activation
	dy    []float32   // gradient of its input, the next one's dz
}

// Forward computes batch samples: x is batch x In(), params are kernel, bias, kernel,
// bias, … of the layers in order. The logits, one per sample, lie in ws until its next
// use. x is copied and may be changed afterwards.
func (t *Tower) Forward(params [][]float32, x []float32, batch int, ws *Workspace) (logits []float32, err error) {
	if err := t.check("parameters", params); err != nil {
		return nil, err
	}
	if batch < 0 || len(x) != batch*t.In() {
		return nil, fmt.Errorf("dense: %d samples of %d inputs got %d floats: give batch*in", batch, t.In(), len(x))
	}
	ws.fit(t, batch)
	copy(ws.acts[0], x)
	for l, layer := range t.layers {
		in, out := ws.acts[l], ws.acts[l+1]
		kernel, bias := params[2*l], params[2*l+1]
		for b := range batch {
			z := out[b*layer.Out : (b+1)*layer.Out]
			copy(z, bias)
			gemv(kernel, in[b*layer.In:(b+1)*layer.In], z)
		}
		if l < len(t.layers)-1 {
			activate(layer.Activation, out)
		}
	}
	return ws.acts[len(t.layers)], nil
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
	case ws.tower != t:
		return fmt.Errorf("dense: the workspace holds no forward pass of this tower: call Forward first")
	case len(dlogits) != ws.batch:
		return fmt.Errorf("dense: %d gradients for %d samples: give one per sample of the last Forward", len(dlogits), ws.batch)
	case dx != nil && len(dx) != ws.batch*t.In():
		return fmt.Errorf("dense: room for %d input gradients where the batch has %d: give batch*in, or nil", len(dx), ws.batch*t.In())
	}
	copy(ws.dz, dlogits)
	for l := len(t.layers) - 1; l >= 0; l-- {
		layer := t.layers[l]
		x := ws.acts[l]
		dz := ws.dz[:ws.batch*layer.Out]
		kernel, dk, db := params[2*l], grads[2*l], grads[2*l+1]
		clear(dk)
		clear(db)
		for b := range ws.batch {
			vec.Add(dz[b*layer.Out:(b+1)*layer.Out], db)
		}
		outer(x, dz, ws.batch, layer.In, layer.Out, dk)
		if l == 0 {
			if dx != nil {
				back(kernel, dz, ws.batch, layer.In, layer.Out, dx)
			}
			return nil
		}
		dy := ws.dy[:ws.batch*layer.In]
		back(kernel, dz, ws.batch, layer.In, layer.Out, dy)
		slope(t.layers[l-1].Activation, x, dy)
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
		*ws = Workspace{tower: t, acts: make([][]float32, len(t.layers)+1)}
	}
	ws.batch = batch
	ws.acts[0] = grow(ws.acts[0], batch*t.In())
	widest := t.In()
	for l, layer := range t.layers {
		ws.acts[l+1] = grow(ws.acts[l+1], batch*layer.Out)
		widest = max(widest, layer.Out)
	}
	ws.dz = grow(ws.dz, batch*widest)
	ws.dy = grow(ws.dy, batch*widest)
}

func grow(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n)
	}
	return s[:n]
}
