package dense

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/par"
)

// DeepFM is a factorization machine beside a tower that reads the same embeddings:
//
//	logit = sum_f linear[f] + sum_{f<g} <e_f, e_g> + tower(e_1 … e_F)
//
// e_f is the embedding of field f, linear[f] its first-order weight. The pairs are summed
// as half of |sum e|^2 - sum |e|^2 (Rendle's square trick). The global bias is that of the
// tower's last layer. Embeddings and first-order weights are rows of tables and come with
// the batch; the parameters here are the tower's. The type is immutable and safe for
// concurrent use, each goroutine with its DeepFMWorkspace.
//
// The tower's promise about bits holds for the whole: a logit does not depend on its batch,
// nothing depends on the threads.
type DeepFM struct {
	fields, dim int
	tower       *Tower
	params      []Param
}

// Param describes one parameter.
type Param struct {
	Name  string
	Shape []int
}

// Size is the number of floats.
func (p Param) Size() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// NewDeepFM makes the model for fields embeddings of dim floats each and ReLU layers of
// hidden units. fields*dim and each of hidden are 1 to MaxUnits.
func NewDeepFM(fields, dim int, hidden ...int) (*DeepFM, error) {
	if fields < 1 || dim < 1 || fields > MaxUnits || dim > MaxUnits {
		return nil, fmt.Errorf("dense: deepfm with %d fields of %d: give 1 to %d each", fields, dim, MaxUnits)
	}
	m := &DeepFM{fields: fields, dim: dim}
	in := fields * dim
	var layers []Layer
	for _, units := range hidden {
		layers = append(layers, Layer{In: in, Out: units, Activation: ActReLU})
		in = units
	}
	layers = append(layers, Layer{In: in, Out: 1, Activation: ActSigmoid})
	var err error
	if m.tower, err = New(layers); err != nil {
		return nil, err
	}
	for l, layer := range layers {
		m.params = append(m.params,
			Param{fmt.Sprintf("mlp/kernel_%d", l), []int{layer.In, layer.Out}},
			Param{fmt.Sprintf("mlp/bias_%d", l), []int{layer.Out}})
	}
	return m, nil
}

// Params names the parameters in the order in which all methods take them.
func (m *DeepFM) Params() []Param { return append([]Param(nil), m.params...) }

// Tower is the deep part.
func (m *DeepFM) Tower() *Tower { return m.tower }

// DeepFMWorkspace keeps what Forward leaves for Backward, as Workspace does for a tower.
// The zero value is ready.
type DeepFMWorkspace struct {
	Workspace
	sums []float32 // batch x dim: sum of a sample's embeddings
	fm   fmWork
}

// Forward computes batch samples. emb is batch x fields x dim, linear batch x fields or nil
// for a model without first-order weights. The logits lie in ws until its next use; emb is
// not copied and must stay as it is until Backward is done.
func (m *DeepFM) Forward(params [][]float32, emb, linear []float32, batch int, ws *DeepFMWorkspace) (logits []float32, err error) {
	if err := m.tower.check("parameters", params); err != nil {
		return nil, err
	}
	if err := m.begin(emb, linear, batch, ws); err != nil {
		return nil, err
	}
	if logits, err = m.tower.forward(params, nil, emb, &ws.Workspace); err != nil {
		return nil, err
	}
	m.pairs(emb, linear, batch, logits, ws)
	return logits, nil
}

func (m *DeepFM) begin(emb, linear []float32, batch int, ws *DeepFMWorkspace) error {
	if err := m.tower.fits(emb, batch); err != nil {
		return err
	}
	if linear != nil && len(linear) != batch*m.fields {
		return fmt.Errorf("dense: %d first-order weights for %d samples of %d fields: give batch*fields, or nil", len(linear), batch, m.fields)
	}
	ws.fit(m.tower, batch)
	ws.sums = grow(ws.sums, batch*m.dim)
	return nil
}

// pairs adds the first two orders to the logits.
func (m *DeepFM) pairs(emb, linear []float32, batch int, logits []float32, ws *DeepFMWorkspace) {
	ws.fm = fmWork{m: m, emb: emb, linear: linear, sums: ws.sums, logits: logits}
	ws.Pool.For(batch, fmGrain, &ws.fm)
	ws.fm = fmWork{}
}

// Backward goes back through the last Forward of ws, with the same params and embeddings.
// grads has the shape of params, demb that of emb (nil if unwanted); both are overwritten.
// The gradient of a first-order weight is the sample's dlogit, unchanged.
func (m *DeepFM) Backward(params [][]float32, ws *DeepFMWorkspace, dlogits []float32, grads [][]float32, demb []float32) error {
	if err := m.tower.Backward(params, &ws.Workspace, dlogits, grads, demb); err != nil {
		return err
	}
	if demb != nil {
		ws.fm = fmWork{m: m, emb: ws.input, sums: ws.sums, logits: dlogits, demb: demb}
		ws.Pool.For(ws.batch, fmGrain, &ws.fm)
		ws.fm = fmWork{}
	}
	return nil
}

// FrozenDeepFM is a model laid out for scoring; see Frozen.
type FrozenDeepFM struct {
	m     *DeepFM
	tower *Frozen
}

// Freeze packs a copy of params for scoring.
func (m *DeepFM) Freeze(params [][]float32, bf16 bool, pool *par.Pool) (*FrozenDeepFM, error) {
	t, err := m.tower.Freeze(params, bf16, pool)
	if err != nil {
		return nil, err
	}
	return &FrozenDeepFM{m, t}, nil
}

// Forward is DeepFM.Forward, with no Backward to follow.
func (f *FrozenDeepFM) Forward(emb, linear []float32, batch int, ws *DeepFMWorkspace) (logits []float32, err error) {
	if err := f.m.begin(emb, linear, batch, ws); err != nil {
		return nil, err
	}
	if logits, err = f.tower.Forward(emb, batch, &ws.Workspace); err != nil {
		return nil, err
	}
	f.m.pairs(emb, linear, batch, logits, ws)
	return logits, nil
}
