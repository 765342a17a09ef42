package modelspec

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// network is a model's graph while it is made.
type network struct {
	*graph.Builder
	spec    *model.ModelSpec
	serving bool
	outputs []Output
	values  map[string][]graph.ID // of outputs, floats and layers, by name
	logits  map[string]graph.ID   // of layers, before a SIGMOID that ends them
	used    map[string]bool       // values that something reads
	tensors []graph.ID            // of outputs, one after another
	lengths map[graph.ID]graph.ID // of tensors of sequences: how many rows each sample has, [n 1]
	towers  map[string][]graph.ID // of dot layers, by name: what they multiply
	vars    []Variable
	weights []graph.ID
	layers  []Layer // in the order in which they are computed
	added   []added // to the loss, likewise

	index   map[string]int // of layers
	begun   map[string]bool
	on      []string // layers that wait for others: a cycle is in here
	layer   *model.DenseLayer
	words   []string // what the layer calls its inputs
	counter int      // of the layer's nodes
}

// newNetwork makes all layers of a spec whose features, tables and outputs are valid.
func newNetwork(spec *model.ModelSpec, outs []Output, serving bool) (*network, error) {
	n := &network{
		Builder: &graph.Builder{}, spec: spec, serving: serving, outputs: outs,
		values: map[string][]graph.ID{}, logits: map[string]graph.ID{}, used: map[string]bool{},
		lengths: map[graph.ID]graph.ID{}, towers: map[string][]graph.ID{},
		index: map[string]int{}, begun: map[string]bool{},
	}
	n.inputs(outs)
	for i, l := range spec.GetLayers() {
		n.index[l.GetName()] = i
		if len(spec.GetOutputs()) == 0 {
			delete(n.values, l.GetName()) // "input" is no word of such a spec
		}
	}
	for i := range spec.GetLayers() {
		if err := n.make(i); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// inputs adds those of every graph of the model, in the order of [Model].
func (n *network) inputs(outs []Output) {
	for _, o := range outs {
		for i, shape := range o.Shapes {
			name := "rows of " + o.Name
			if o.Type == model.Output_NONE {
				name += "." + strconv.Itoa(i)
			}
			id := n.Input(name, shape...)
			n.tensors, n.values[o.Name] = append(n.tensors, id), append(n.values[o.Name], id)
		}
	}
	lengths := map[string]graph.ID{}
	for _, name := range sequences(n.spec) {
		lengths[name] = n.Input("lengths of "+name, 1)
	}
	at := 0
	for _, o := range outs {
		for i := range o.Shapes {
			if length, ok := lengths[o.Slices[i].Feature]; ok {
				n.lengths[n.tensors[at]] = length
			}
			at++
		}
	}
	for _, f := range n.spec.GetFloats() {
		n.values[f.GetName()] = []graph.ID{n.Input("float "+f.GetName(), int(max(f.GetDim(), 1)))}
	}
}

// make adds a layer, after those that it reads.
func (n *network) make(i int) error {
	l := n.spec.GetLayers()[i]
	name, path := l.GetName(), fmt.Sprintf("layers[%d]", i)
	if _, done := n.logits[name]; done {
		return nil
	}
	if n.begun[name] {
		circle := n.on[slices.Index(n.on, name):]
		return at(path, "layer %q reads itself, by way of %s: take one of these inputs away", name, strings.Join(append(circle, name)[1:], ", "))
	}
	n.begun[name], n.on = true, append(n.on, name)
	in, err := n.operands(i, l)
	if err != nil {
		return err
	}
	n.on = n.on[:len(n.on)-1]
	n.layer, n.counter, n.words = l, 0, l.GetInputs()
	if len(n.words) == 0 && i > 0 {
		n.words = []string{n.spec.GetLayers()[i-1].GetName()}
	} else if len(n.words) == 0 {
		n.words = []string{n.outputs[0].Name}
	}
	vars := len(n.vars)
	made, err := n.kind(l, in)
	if err == nil {
		n.logits[name] = made[0]
		err = n.finish(l, made, in)
	}
	if err == nil && made[0] != graph.None {
		err = n.regularize(vars, made)
	}
	if err == nil && made[0] == graph.None {
		_, err = n.Graph() // what the builder has against it
	}
	if err != nil {
		return at(path, "layer %q: %w", name, err)
	}
	n.values[name] = made
	n.layers = append(n.layers, n.listed(vars, made))
	return nil
}

// finish puts the layer's activation on its values.
func (n *network) finish(l *model.DenseLayer, made, in []graph.ID) (err error) {
	values := made
	if beside(l) {
		values = made[:1]
	}
	for i := range values {
		if values[i], err = n.activate(valuePrefix(values, i), values[i], l.GetActivation()); err != nil {
			return err
		}
		n.keepLengths(values[i], in[0])
	}
	return nil
}

// valuePrefix tells the variables of a layer's i-th value from the others'.
func valuePrefix(made []graph.ID, i int) string {
	if len(made) == 1 {
		return ""
	}
	return strconv.Itoa(i) + "/"
}

// listed is the layer that was made, whose variables are those from vars on.
func (n *network) listed(vars int, made []graph.ID) Layer {
	l := Layer{Name: n.layer.GetName(), Kind: kindName(n.layer), Inputs: n.words}
	for _, id := range made {
		l.Shapes = append(l.Shapes, n.shape(id))
	}
	for _, v := range n.vars[vars:] {
		l.Parameters += v.Size
	}
	return l
}

// operands are a layer's inputs: those that it names, or what comes before it.
func (n *network) operands(i int, l *model.DenseLayer) ([]graph.ID, error) {
	path := fmt.Sprintf("layers[%d]", i)
	if len(l.GetInputs()) == 0 {
		if i > 0 {
			return n.value(path, l, n.spec.GetLayers()[i-1].GetName())
		}
		if len(n.tensors) != 1 {
			return nil, at(path, "layer %q is the first and names no inputs, of which there are several: name those that it reads", l.GetName())
		}
		n.used[n.outputs[0].Name] = true
		return n.tensors, nil
	}
	var in []graph.ID
	for _, word := range l.GetInputs() {
		ids, err := n.value(path, l, word)
		if err != nil {
			return nil, err
		}
		in = append(in, ids...)
	}
	return in, nil
}

// value finds what a layer calls by a word: a name, or one and the number of its value.
func (n *network) value(path string, l *model.DenseLayer, word string) ([]graph.ID, error) {
	ids, err := n.find(word)
	if err != nil {
		return nil, err
	}
	name, nth := word, 0
	if ids == nil {
		if dot := strings.LastIndexByte(word, '.'); dot > 0 {
			if k, err := strconv.Atoi(word[dot+1:]); err == nil && k >= 0 {
				name, nth = word[:dot], k
				if ids, err = n.find(name); err != nil {
					return nil, err
				}
			}
		}
	}
	switch {
	case ids == nil:
		return nil, at(path, "layer %q reads %q, which is no output, float or layer: declare it, or name one that is", l.GetName(), word)
	case nth >= len(ids):
		return nil, at(path, "layer %q reads %q, and %q has %d values: count from %s.0", l.GetName(), word, name, len(ids), name)
	case name == word && len(ids) > 1 && !n.beside(name):
		return nil, at(path, "layer %q reads %q, which has %d values: name one, as %s.0", l.GetName(), word, len(ids), word)
	}
	n.used[name] = true
	return ids[nth : nth+1], nil
}

// beside says whether the layer of that name has one value, and others beside it.
func (n *network) beside(name string) bool {
	i, layer := n.index[name]
	return layer && beside(n.spec.GetLayers()[i])
}

// find returns the values of a name, which may be of a layer that is not made yet; none, if
// there is no such name.
func (n *network) find(name string) ([]graph.ID, error) {
	if i, layer := n.index[name]; layer && n.values[name] == nil {
		if err := n.make(i); err != nil {
			return nil, err
		}
	}
	return n.values[name], nil
}

// add adds a node of the layer.
func (n *network) add(op graph.Op, in ...graph.ID) graph.ID {
	n.counter++
	return n.Add(fmt.Sprintf("%s:%s.%d", n.layer.GetName(), op.Name(), n.counter), op, in...)
}

// weight adds a variable of the layer, drawn or filled at first.
func (n *network) weight(name string, fill float32, shape ...int) (graph.ID, error) {
	v := Variable{Name: n.layer.GetName() + "/" + name, Size: 1, fill: fill}
	for _, d := range shape {
		if d < 1 || d > MaxVariable/v.Size {
			return graph.None, fmt.Errorf("it has a %s of %s: %d elements are allowed", name, by(shape), MaxVariable)
		}
		v.Shape, v.Size = append(v.Shape, uint32(d)), v.Size*d
	}
	n.vars = append(n.vars, v)
	n.weights = append(n.weights, n.Weight(v.Name, shape...))
	return n.weights[len(n.weights)-1], nil
}

func by(shape []int) string {
	words := make([]string, len(shape))
	for i, d := range shape {
		words[i] = strconv.Itoa(d)
	}
	return strings.Join(words, " by ")
}

// product adds x w + b with variables of that prefix.
func (n *network) product(prefix string, x graph.ID, units int) (graph.ID, error) {
	kernel, err := n.weight(prefix+"kernel", float32(math.NaN()), n.shape(x).Last(), units)
	if err != nil {
		return graph.None, err
	}
	bias, err := n.weight(prefix+"bias", 0, units)
	if err != nil {
		return graph.None, err
	}
	p := n.precision()
	if units == 1 { // a logit, or a part of one: exact, and no slower so
		p = graph.FP32
	}
	return n.add(graph.MatMul{Bias: true, Precision: p}, x, kernel, bias), nil
}

// precision is that of the layer's products.
func (n *network) precision() graph.Precision {
	compute := n.spec.GetCompute()
	if n.serving {
		compute = n.spec.GetServingCompute()
	}
	if n.layer.Compute != nil {
		compute = n.layer.GetCompute()
	}
	return graph.Precision(compute) // the numbers are the same
}

// flat is a value as one row of numbers.
func (n *network) flat(x graph.ID) graph.ID {
	if s := n.shape(x); len(s.Dims) != 1 {
		return n.add(graph.Reshape{Dims: []int{s.Size()}}, x)
	}
	return x
}

// joined is the layer's inputs side by side.
func (n *network) joined(in []graph.ID) graph.ID {
	flat := make([]graph.ID, len(in))
	for i, x := range in {
		flat[i] = n.flat(x)
	}
	if len(flat) == 1 {
		return flat[0]
	}
	return n.add(graph.Concat{}, flat...)
}

// shape is a value's; of none, which the builder refused, any will do.
func (n *network) shape(x graph.ID) graph.Shape {
	if x == graph.None {
		return graph.PerSample(1)
	}
	return n.Node(x).Shape
}

// single is a layer's only input.
func (n *network) single(in []graph.ID) (graph.ID, error) {
	if len(in) != 1 {
		return graph.None, fmt.Errorf("it has %d inputs: give one", len(in))
	}
	return in[0], nil
}
