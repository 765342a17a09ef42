// Package layout turns the sparse ids of a batch into the dense tensors that a model
// reads, and gradients of those tensors back into gradients of rows.
//
//	batch ── Shard ──► ids per (table, shard) ── look up ──► rows per (table, shard)
//	                └► offsets ────────────────────────────► Forward ──► tensors
//	                                           row gradients ◄── Gradient ◄── gradients
//
// A [Plan] is compiled once from the features and the outputs of a model and the number
// of shards; it never changes and serves any number of goroutines. The five versions of
// the original's ShardingSparseFids and MonolithEmbeddingToLayout operations differ in
// how they write offsets and cut buffers, not in what they compute; see [Version].
//
// Orders are those of names, compared as bytes: tables, features (overall and within a
// table) and outputs. Additions happen in one fixed order (samples' ids as given, then
// slices as configured), so results are the same bits whatever runs them in parallel.
// NaN and Inf follow IEEE 754. No input bytes and no offsets can make the package panic
// or reach outside its buffers: what does not fit together is an error.
package layout

import "fmt"

// Pooling says how the rows of one sample's ids become one value. The numbers are those
// of the original's PoolingType.
type Pooling uint8

const (
	// Sum adds the rows.
	Sum Pooling = 0
	// Mean divides each row by the number of ids, repeated ones counted, and adds.
	Mean Pooling = 1
	// FirstN keeps the first MaxSequenceLength rows one after another; what is missing is 0.
	FirstN Pooling = 3
)

// OutType says how the slices of an output are put together. The numbers are those of
// the original's OutType.
type OutType uint8

const (
	// Concat puts slices side by side on the last axis: [batch, sum of widths], or
	// [batch, n, sum of widths] when all slices are FirstN of the same n.
	Concat OutType = 0
	// Stack gives each slice an index of its own on axis 1: [batch, slices, width], or
	// [batch, slices, n, width] when all slices are FirstN of the same n.
	Stack OutType = 1
	// AddN adds slices of equal width: [batch, width]. FirstN has no meaning here.
	AddN OutType = 2
	// None makes each slice a tensor of its own: [batch, width] or [batch, n, width].
	None OutType = 3
)

// Version is that of the original's operations. It decides the meaning of an offset word
// (FIDOffset) and how ids and rows are cut into buffers:
//
//	V1   table·shards+shard and row; one [rows, width] buffer for each (table, shard)
//	V2   part of a feature and row in that part; buffers with row splits
//	V3   table·shards+shard and float offset; flat buffers
//	V4   offsets as V3; one flat buffer, shard by shard, in each table by table
//	V5   as V3, and sizes that let several requests be answered by one call
//
// V1 needs features of one table to be equally wide; the others do not.
type Version uint8

const (
	V1 Version = 1 + iota
	V2
	V3
	V4
	V5
)

// Feature is one sparse feature: its rows live in Table and are sum(SliceDims) floats.
type Feature struct {
	Name              string
	Table             string
	Pooling           Pooling
	SliceDims         []int
	MaxSequenceLength int // ids kept by FirstN; the other poolings take all
}

// Slice is columns Start to End (exclusive) of a feature's rows.
type Slice struct {
	Feature    string
	Start, End int
}

// Output is one named layout: slices put together by Type. Shapes holds one shape, or
// one for each slice with None; the first dimension is -1 or the exact batch size, the
// others multiply to the floats of one sample. Without Shapes they are those that the
// OutType constants document.
type Output struct {
	Name   string
	Type   OutType
	Slices []Slice
	Shapes [][]int
}

// Config is everything a [Plan] is made of.
type Config struct {
	Features []Feature
	Outputs  []Output
	Shards   int    // parameter-server shards, ps_num; 1 to 65536
	Limits   Limits // zero fields mean the defaults
}

// Limits bound what a batch may make this package allocate. Batches come from outside,
// and ten bytes can claim two thousand million samples.
type Limits struct {
	Batch int // samples in a batch; default 1<<20
	Rows  int // features × samples; default and at most 1<<28
	FIDs  int // ids in a batch; default and at most 1<<28
}

const (
	defaultBatch = 1 << 20
	maxRows      = 1 << 28
	maxShards    = 1 << 16
	maxWidth     = 1 << 20 // floats of one row
	maxSample    = 1 << 28 // floats of one sample of one tensor
)

func (l Limits) withDefaults() (Limits, error) {
	if l.Batch == 0 {
		l.Batch = defaultBatch
	}
	if l.Rows == 0 {
		l.Rows = maxRows
	}
	if l.FIDs == 0 {
		l.FIDs = maxRows
	}
	if l.Batch < 1 || l.Rows < 1 || l.FIDs < 1 || l.Batch > maxRows || l.Rows > maxRows || l.FIDs > maxRows {
		return l, fmt.Errorf("layout: limits %+v must be between 1 and %d", l, maxRows)
	}
	return l, nil
}

func (p Pooling) String() string {
	switch p {
	case Sum:
		return "SUM"
	case Mean:
		return "MEAN"
	case FirstN:
		return "FIRSTN"
	}
	return fmt.Sprintf("Pooling(%d)", uint8(p))
}

func (o OutType) String() string {
	switch o {
	case Concat:
		return "CONCAT"
	case Stack:
		return "STACK"
	case AddN:
		return "ADDN"
	case None:
		return "NONE"
	}
	return fmt.Sprintf("OutType(%d)", uint8(o))
}
