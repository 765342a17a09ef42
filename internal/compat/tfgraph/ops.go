package tfgraph

import "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

// What follows are TensorFlow's operations, on float32 where nothing else is said.

func (g *graph) one(op string, x ...tensor) tensor {
	return g.add(op, op, attrs{"T": of(float32s)}, x...)
}

func (g *graph) addUp(a, b tensor) tensor     { return g.one("AddV2", a, b) }
func (g *graph) times(a, b tensor) tensor     { return g.one("Mul", a, b) }
func (g *graph) less(a, b tensor) tensor      { return g.one("Sub", a, b) }
func (g *graph) over(a, b tensor) tensor      { return g.one("RealDiv", a, b) }
func (g *graph) larger(a, b tensor) tensor    { return g.one("Maximum", a, b) }
func (g *graph) choose(c, a, b tensor) tensor { return g.one("SelectV2", c, a, b) }

func (g *graph) cast(x tensor, from, to types_go_proto.DataType) tensor {
	return g.add("Cast", "Cast", attrs{"SrcT": of(from), "DstT": of(to)}, x)
}

// along reduces axes of x by Sum, Mean or Max.
func (g *graph) along(op string, x tensor, keep bool, axes ...int) tensor {
	return g.add(op, op, attrs{"T": of(float32s), "Tidx": of(int32s), "keep_dims": truth(keep)}, x, g.ints(axes...))
}

// reshape gives what is behind the batch the dimensions dims.
func (g *graph) reshape(x tensor, dims ...int) tensor {
	return g.add("Reshape", "Reshape", attrs{"T": of(float32s), "Tshape": of(int32s)}, x, g.ints(append([]int{-1}, dims...)...))
}

// expand puts a dimension of 1 at axis.
func (g *graph) expand(x tensor, axis int) tensor {
	return g.add("ExpandDims", "ExpandDims", attrs{"T": of(float32s), "Tdim": of(int32s)}, x, g.int(axis))
}

// concat lays values side by side along axis.
func (g *graph) concat(kind types_go_proto.DataType, axis int, x ...tensor) tensor {
	if len(x) == 1 {
		return x[0]
	}
	return g.add("ConcatV2", "ConcatV2", attrs{"T": of(kind), "Tidx": of(int32s), "N": number(len(x))}, append(x, g.int(axis))...)
}

// stack puts values of one shape along a new axis.
func (g *graph) stack(axis int, x ...tensor) tensor {
	return g.add("Pack", "Pack", attrs{"T": of(float32s), "N": number(len(x)), "axis": number(axis)}, x...)
}

// cut is from to to (excluded) of x's axis, all of the others, of which there are rank in all.
func (g *graph) cut(kind types_go_proto.DataType, x tensor, rank, axis, from, to int) tensor {
	begin, end, strides := make([]int, rank), make([]int, rank), make([]int, rank)
	for i := range strides {
		strides[i] = 1
	}
	begin[axis], end[axis] = from, to
	all := (1<<rank - 1) &^ (1 << axis) // whose begin and end do not count
	return g.add("StridedSlice", "StridedSlice", attrs{"T": of(kind), "Index": of(int32s), "begin_mask": number(all), "end_mask": number(all),
		"ellipsis_mask": number(0), "new_axis_mask": number(0), "shrink_axis_mask": number(0)}, x, g.ints(begin...), g.ints(end...), g.ints(strides...))
}

// rows is how many x has, a number.
func (g *graph) rows(x tensor, kind types_go_proto.DataType) tensor {
	shape := g.add("Shape", "Shape", attrs{"T": of(kind), "out_type": of(int32s)}, x)
	return g.add("StridedSlice", "StridedSlice", attrs{"T": of(int32s), "Index": of(int32s), "begin_mask": number(0), "end_mask": number(0),
		"ellipsis_mask": number(0), "new_axis_mask": number(0), "shrink_axis_mask": number(1)}, shape, g.ints(0), g.ints(1), g.ints(1))
}

// fill is value in every place of n times dims.
func (g *graph) fill(kind types_go_proto.DataType, n, value tensor, dims ...int) tensor {
	whole := g.expandInts(n)
	if len(dims) > 0 {
		whole = g.concat(int32s, 0, whole, g.ints(dims...))
	}
	return g.add("Fill", "Fill", attrs{"T": of(kind), "index_type": of(int32s)}, whole, value)
}

func (g *graph) expandInts(n tensor) tensor {
	return g.add("ExpandDims", "ExpandDims", attrs{"T": of(int32s), "Tdim": of(int32s)}, n, g.int(0))
}

// product is that of the matrices in the last two dimensions, each transposed or not.
func (g *graph) product(a, b tensor, transposeA, transposeB bool) tensor {
	return g.add("BatchMatMulV2", "BatchMatMulV2", attrs{"T": of(float32s), "adj_x": truth(transposeA), "adj_y": truth(transposeB)}, a, b)
}
