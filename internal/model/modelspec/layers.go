package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// kind adds what a layer's kind computes, without its activation: one value or several. Each kind
// is a file, layer_*.go.
func (n *network) kind(l *model.DenseLayer, in []graph.ID) ([]graph.ID, error) {
	if l.GetKind() != nil && l.GetUnits() != 0 {
		return nil, fmt.Errorf("units are a dense layer's and it is of another kind: put them into the kind, or take the kind away")
	}
	var y graph.ID
	var err error
	switch k := l.GetKind().(type) {
	case nil:
		y, err = n.dense(l.GetUnits(), in)
	case *model.DenseLayer_Mlp:
		y, err = n.mlp(k.Mlp, in)
	case *model.DenseLayer_Add:
		y, err = n.sum(k.Add, in)
	case *model.DenseLayer_Mul:
		y, err = n.each(graph.Mul{}, in)
	case *model.DenseLayer_Activate:
		y, err = n.single(in)
	case *model.DenseLayer_Fm:
		y, err = n.fm(in)
	case *model.DenseLayer_Ffm:
		y, err = n.ffm(in)
	case *model.DenseLayer_Dot:
		y, err = n.dot(in)
	case *model.DenseLayer_Norm:
		y, err = n.norm(k.Norm, in)
	case *model.DenseLayer_Pool:
		y, err = n.pool(k.Pool, in)
	case *model.DenseLayer_Cross:
		y, err = n.cross(k.Cross, in)
	case *model.DenseLayer_Attention:
		return n.attention(k.Attention, in)
	case *model.DenseLayer_Gru:
		return n.gru(k.Gru.GetUnits(), false, in)
	case *model.DenseLayer_Augru:
		return n.gru(k.Augru.GetUnits(), true, in)
	case *model.DenseLayer_Mmoe:
		return n.mmoe(k.Mmoe, in)
	case *model.DenseLayer_Ple:
		return n.ple(k.Ple, in)
	default:
		return nil, fmt.Errorf("its kind, %s, is not computed by this build: use one of spec.proto", kindName(l))
	}
	return []graph.ID{y}, err
}

// beside says whether a layer's first value is what its name means, and its activation's; the others, as "x.1",
// are how it came to be.
func beside(l *model.DenseLayer) bool {
	switch l.GetKind().(type) {
	case *model.DenseLayer_Attention, *model.DenseLayer_Gru, *model.DenseLayer_Augru:
		return true
	}
	return false
}

// kindName is what the spec calls a layer's kind.
func kindName(l *model.DenseLayer) string {
	m := l.ProtoReflect()
	if f := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind")); f != nil {
		return string(f.Name())
	}
	return "dense"
}
