package nn

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/graph"
)

// kernelOf is the table from operations to kernels; in and out are the shapes of operands and result.
func kernelOf(op graph.Op, in []graph.Shape, out graph.Shape) kernel {
	switch op := op.(type) {
	case graph.MatMul:
		return matMul{op}
	case graph.SumRows:
		return sumRows{}
	case graph.Concat:
		return concat{}
	case graph.CrossEntropy:
		return crossEntropy{}
	case graph.MSE:
		return mse{}
	case graph.CrossEntropyGrad:
		return &byRow{grain: costly, f: crossEntropyGrad}
	case graph.MSEGrad:
		return &byRow{grain: cheap, f: mseGrad}
	case graph.InBatchSoftmax:
		return &inBatch{softmaxTerm{}, nil}
	case graph.InBatchSoftmaxGrad:
		return inBatchSoftmaxGrad{}
	case graph.InBatchAUC:
		return &inBatch{aucTerm{}, ordered}
	case graph.InBatchAUCGrad:
		return inBatchAUCGrad{}
	case graph.Penalty:
		return penaltyOf(op, in[0])
	case graph.PenaltyGrad:
		return penaltyGradOf(op, in[0])
	case graph.MulAdd:
		return mulAdd{}
	case graph.MulScalar:
		return mulScalar{}
	case graph.TimesBatch:
		return timesBatch{}
	case graph.Broadcast:
		return broadcast{}
	case graph.Slice:
		return &byRow{grain: cheap, f: func(dst, x, _ []float32, _ int) { copy(dst, x[op.From:]) }}
	case graph.Pad:
		return &byRow{grain: cheap, f: func(dst, x, _ []float32, _ int) {
			clear(dst[:op.From])
			clear(dst[op.From+copy(dst[op.From:], x):])
		}}
	}
	if k := kernelOfVectors(op, in, out); k != nil {
		return k
	}
	if f, grain := elementwise(op); f != nil {
		return &byElement{f, grain}
	}
	return nil
}

// kernelOfVectors is the kernel of an operation on the vectors and matrices of a sample, nil
// for another one.
func kernelOfVectors(op graph.Op, in []graph.Shape, out graph.Shape) kernel {
	switch op := op.(type) {
	case graph.FM:
		return &fm{in[0].Dims[0], in[0].Dims[1]}
	case graph.FMGrad:
		return &fmGrad{fm{in[0].Dims[0], in[0].Dims[1]}}
	case graph.FFM:
		return &ffm{in[0].Dims[0], in[0].Dims[2]}
	case graph.FFMGrad:
		return &ffmGrad{ffm{in[0].Dims[0], in[0].Dims[2]}}
	case graph.Sum:
		return along(in[0].Around(op.Axis))
	case graph.Repeat:
		return &repeat{op.Count, graph.PerSample(in[0].Dims[op.Axis:]...).Size()}
	case graph.AddRow:
		return &byLast{addRow}
	case graph.MulRow:
		return &byLast{mulRow}
	case graph.PReLU:
		return &byLast{preLU}
	case graph.PReLUGrad:
		return &byLast{preLUGrad}
	case graph.Softmax:
		return &softmax{in[0].Last(), op.Lengths}
	case graph.SoftmaxGrad:
		return &softmaxGrad{softmax{in[0].Last(), op.Lengths}}
	case graph.Normalize:
		return &norm{in[0].Last(), float64(op.Epsilon), normalize}
	case graph.NormalizeGrad:
		return &norm{in[0].Last(), float64(op.Epsilon), normalizeGrad}
	case graph.L2Norm:
		return &norm{in[0].Last(), float64(op.Epsilon), l2Norm}
	case graph.L2NormGrad:
		return &norm{in[0].Last(), float64(op.Epsilon), l2NormGrad}
	case graph.BatchMatMul:
		return &batchMatMul{op.Kind, out.Dims[0], in[0].Size() / out.Dims[0], out.Dims[1]}
	case graph.AddEach:
		return &byStep{in[0].Last(), add}
	case graph.MulEach:
		return &byStep{in[0].Last(), mul}
	case graph.SumProducts:
		return &sumProducts{in[0].Dims[0]}
	case graph.GRU:
		return gruOf(op, in[1], 0)
	case graph.GRUGrad:
		return &gruGrad{*gruOf(graph.GRU(op), in[3], 2)}
	}
	return nil
}

// lower makes the steps: of each node that is not merely a view, and of each output that does not
// lie where the caller wants it.
func (c *compiler) lower() error {
	for i, n := range c.nodes {
		if !c.used[i] {
			continue
		}
		switch n.Op.(type) {
		case graph.Input, graph.Weight:
			continue
		case graph.Slice, graph.Reshape:
			if c.viewed[i] {
				continue
			}
		case graph.Concat:
			if c.inPlace(n) {
				continue
			}
		}
		var in []graph.Shape
		for _, id := range n.In {
			in = append(in, c.nodes[id].Shape)
		}
		k := kernelOf(n.Op, in, n.Shape)
		if k == nil {
			return fmt.Errorf("nn: node %q: there is no kernel for the operation %s", n.Name, n.Op.Name())
		}
		if op, ok := n.Op.(graph.MatMul); ok && op.Precision == graph.INT8 && c.places[n.In[1]].root != weightRoot {
			return fmt.Errorf("nn: node %q: a product of int8 by what is no variable: it would be quantised for each batch", n.Name)
		}
		c.step(n, k)
	}
	c.outside()
	c.p.places = c.places
	c.p.sizes = make([]int, len(c.nodes))
	for i, n := range c.nodes {
		if !n.Shape.Batch {
			c.p.sizes[i] = n.Shape.Size()
		}
	}
	return nil
}

// outside copies the outputs that do not lie in the caller's memory.
func (c *compiler) outside() {
	for i, o := range c.outputs {
		if p := c.places[o.ID]; p.root == outputRoot && p.index == i {
			continue
		}
		n := graph.Node{ID: graph.ID(len(c.nodes)), Name: o.Name, Op: graph.Reshape{}, In: []graph.ID{o.ID}, Shape: c.nodes[o.ID].Shape}
		c.nodes, c.places = append(c.nodes, n), append(c.places, place{})
		c.at(n.ID, place{root: outputRoot, index: i})
		c.step(n, &byElement{moved, cheap})
	}
}

func (c *compiler) step(n graph.Node, k kernel) {
	s := step{node: n, out: int(n.ID), aside: -1, weight: -1, kernel: k}
	for _, in := range n.In {
		s.in = append(s.in, int(in))
		s.shapes = append(s.shapes, c.nodes[in].Shape)
	}
	if len(s.in) > 1 && c.places[s.in[1]].root == weightRoot {
		s.weight = c.places[s.in[1]].index
	}
	if k, ok := k.(scratch); ok {
		aside := graph.Node{ID: graph.ID(len(c.nodes)), Shape: graph.PerSample(k.aside())}
		c.nodes, c.places = append(c.nodes, aside), append(c.places, place{})
		c.fresh(aside.ID)
		s.aside = int(aside.ID)
	}
	c.p.steps = append(c.p.steps, s)
}

// inPlace says that all operands lie in a Concat's rows already.
func (c *compiler) inPlace(n graph.Node) bool {
	p := c.places[n.ID]
	for _, in := range n.In {
		if !p.holds(c.places[in]) {
			return false
		}
		p.col += c.nodes[in].Shape.Size()
	}
	return true
}

// holds says that q begins where p does.
func (p place) holds(q place) bool { return q.root == p.root && q.index == p.index && q.col == p.col }
