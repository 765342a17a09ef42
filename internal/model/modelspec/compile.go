package modelspec

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/nn"
)

// Model is a spec compiled: what every role makes of it, and what can be computed.
type Model struct {
	Spec      *model.ModelSpec
	Outputs   []Output   // by name, as kernels/layout has them
	Variables []Variable // in the order of both graphs' weights
	Tasks     []Task
	Tensors   int // of Outputs
	Layers    []Layer
	Added     []Added // losses of layers

	// Sequences are the features of FIRSTN, in order: how many rows of them each sample has are
	// inputs.
	Sequences []string

	// Train computes the scores of all tasks, the mean loss, that of each task by itself and without
	// its weight, what each of Added is, and the gradients by the tensors and the variables of the mean loss
	// and Added; with reduction SUM these are of the samples' sum. Its inputs are the tensors, the lengths of Sequences, the
	// floats, a label for each task, and weights for those that have them.
	Train *graph.Graph

	// Serve computes the scores of all tasks, of the tensors, the lengths and the floats.
	Serve *graph.Graph
}

// Layer is one of a model's, as it is computed.
type Layer struct {
	Name, Kind string
	Inputs     []string
	Shapes     []graph.Shape // of its values
	Parameters int           // of its variables
}

// Compile makes what spec declares, or says what is wrong with it; a nil error means that
// every role can take the model. The spec is not to be changed any more.
func Compile(spec *model.ModelSpec) (*Model, error) {
	m, c := compiled(spec)
	return m, c.err()
}

// compiled is a spec's model, or complaints.
func compiled(spec *model.ModelSpec) (*Model, *complaints) {
	c := declared(spec)
	if len(c.all) > 0 {
		return nil, c
	}
	m, err := build(spec)
	if err != nil {
		c.take(err)
		return nil, c
	}
	return m, c
}

// build compiles a spec whose elements are valid each by itself.
func build(spec *model.ModelSpec) (*Model, error) {
	m := &Model{Spec: spec, Sequences: sequences(spec)}
	for i, o := range outputs(spec) {
		made, err := output(spec, o)
		if err != nil {
			return nil, at(fmt.Sprintf("outputs[%d]", i), "output %q: %w", o.GetName(), err)
		}
		m.Outputs = append(m.Outputs, made)
		m.Tensors += len(made.Shapes)
	}
	slices.SortFunc(m.Outputs, func(a, b Output) int { return cmp.Compare(a.Name, b.Name) })
	if err := m.everyFeatureIsRead(); err != nil {
		return nil, err
	}
	for _, serving := range []bool{false, true} {
		n, err := newNetwork(spec, m.Outputs, serving)
		if err != nil {
			return nil, err
		}
		heads, err := n.heads()
		if err != nil {
			return nil, err
		}
		if err := n.allUsed(); err != nil {
			return nil, err
		}
		into := &m.Train
		if serving {
			into = &m.Serve
			for _, h := range heads {
				n.Output("score of "+h.Name, h.score)
			}
		} else {
			m.Variables, m.Layers = n.vars, n.layers
			for _, h := range heads {
				m.Tasks = append(m.Tasks, h.Task)
			}
			for _, a := range n.added {
				m.Added = append(m.Added, a.Added)
			}
			n.train(heads)
		}
		if *into, err = n.Graph(); err != nil {
			return nil, err
		}
		if _, err := nn.Compile(*into, nn.Options{}); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// everyFeatureIsRead complains about a feature whose rows would be looked up for nothing.
func (m *Model) everyFeatureIsRead() error {
	read := map[string]bool{}
	for _, o := range m.Outputs {
		for _, s := range o.Slices {
			read[s.Feature] = true
		}
	}
	for i, f := range m.Spec.GetFeatures() {
		if !read[f.GetName()] {
			return at(fmt.Sprintf("features[%d]", i), "feature %q is a slice of no output: name it in one, or remove it", f.GetName())
		}
	}
	return nil
}

// allUsed complains about what is declared for nobody.
func (n *network) allUsed() error {
	for i, o := range n.spec.GetOutputs() {
		if !n.used[o.GetName()] {
			return at(fmt.Sprintf("outputs[%d]", i), "output %q is read by no layer: name it in the inputs of one, or remove it", o.GetName())
		}
	}
	for i, f := range n.spec.GetFloats() {
		if !n.used[f.GetName()] {
			return at(fmt.Sprintf("floats[%d]", i), "float %q is read by no layer: name it in the inputs of one, or remove it", f.GetName())
		}
	}
	for i, l := range n.spec.GetLayers() {
		if !n.used[l.GetName()] {
			return at(fmt.Sprintf("layers[%d]", i), "layer %q is read by no layer and no task: name it in one, or remove it", l.GetName())
		}
	}
	return nil
}
