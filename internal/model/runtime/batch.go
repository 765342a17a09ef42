package runtime

import (
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/nn"
)

// ErrFull says that a batch has as many samples, ids or rows as are allowed.
var ErrFull = errors.New("the batch is full")

// errUnsealed says that a batch was changed since it was sealed.
var errUnsealed = errors.New("the batch is not sealed: seal it and look its rows up first")

// Batch is a number of samples, the rows that they read and the gradients of these. It is
// filled by Add, or column by column, and used again after Reset. Its memory grows to the
// largest batch there was and is bounded by the engine's number of samples, by MaxBatchIDs and
// by MaxBatchRows.
type Batch struct {
	e       *Engine
	ids     []column    // by feature of the spec
	bounded []column    // by feature that has a vocabulary: of its rows
	singles int         // the first samples, which have one id of each feature and came by AddSingle
	ones    [][]int64   // by feature: one sample's
	floats  [][]float32 // by Float of the spec
	labels  [][]float32 // by task
	weights [][]float32 // by task; nil: it has none
	sealed  bool
	scored  bool   // sealed for scores: shared says of which features all samples have the same ids
	shared  []bool // by feature
	same    []int  // by input of a score

	layout     *layout.Batch
	shards     layout.Shards
	rows       layout.Rows
	sizes      [4]int32    // behind the slices of one element in rows
	lengths    [][]float32 // by sequence of the model
	embeddings [][]float32 // by block of the plan, all in values
	gradients  [][]float32 // likewise, all in slopes
	values     []float32
	slopes     []float32
	seqs       []uint64
	blocks     []Block // shard by shard, tables in the spec's order
	ends       []int   // by shard: where its blocks end
	places     []int32 // by block of the plan: where it is among its shard's blocks

	input  []layout.Tensor
	in     [][]float32 // the tensors of input, lengths, floats, then labels and weights
	part   [][]float32 // of in, those of a stretch of samples
	losses []float64   // by task
	added  []Added
	out    nn.Outputs // of a step; Dense are its last
	scores nn.Outputs

	// Dense are the gradients of the dense variables, which Train sets.
	Dense [][]float32
}

// Sample is one sample; Add copies what its slices hold.
type Sample struct {
	IDs     [][]int64   // by feature of the spec, any number of ids; those of a crossed one are nil: Add makes them
	Floats  [][]float32 // by Float of the spec, as many numbers as it says
	Labels  []float32   // by task
	Weights []float32   // by task: weight_field times mask_field; nil: 1
}

// Block is what a batch reads of one table on one shard. A lookup writes Rows, and Seqs if
// it knows them; Train writes Grads, which is nil before.
type Block struct {
	Table string
	Dim   int
	IDs   []int64 // each once
	Rows  []float32
	Grads []float32
	Seqs  []uint64 // sync sequence that wrote each row
}

// NewBatch returns an empty batch.
func (e *Engine) NewBatch() *Batch {
	b := &Batch{
		e: e, layout: e.plan.NewBatch(), ids: make([]column, len(e.features)), bounded: make([]column, len(e.features)), floats: make([][]float32, len(e.floats)),
		shared: make([]bool, len(e.features)),
		labels: make([][]float32, len(e.tasks)), weights: make([][]float32, len(e.tasks)),
		lengths: make([][]float32, len(e.sequences)),
	}
	b.out.Values = make([][]float32, e.at.dense+len(e.vars))
	b.Dense = b.out.Values[e.at.dense:]
	blocks := len(e.tables) * e.shards
	b.embeddings, b.gradients = make([][]float32, blocks), make([][]float32, blocks)
	b.blocks, b.places, b.ends = make([]Block, 0, blocks), make([]int32, blocks), make([]int, e.shards)
	return b
}

// Len is the number of samples.
func (b *Batch) Len() int { return b.ids[b.e.first].samples() }

// Labels are those of a task, by sample.
func (b *Batch) Labels(task int) []float32 { return b.labels[task] }

// Weights are those of a task, by sample; nil: it has none, each counts as 1.
func (b *Batch) Weights(task int) []float32 { return b.weights[task] }

// IDs are those of a sample's feature: of a FIRSTN feature the first max_sequence_length.
func (b *Batch) IDs(feature, sample int) []int64 { return b.ids[feature].of(sample) }

// Reads are the ids of the rows that a sample's feature reads, in a sealed batch: its IDs, or what its
// vocabulary makes of them.
func (b *Batch) Reads(feature, sample int) []int64 { return b.rowIDs(feature).of(sample) }

// Floats are the numbers of a sample's Float of the spec.
func (b *Batch) Floats(float, sample int) []float32 {
	dim := b.e.floats[float].dim
	return b.floats[float][sample*dim : (sample+1)*dim]
}

// Seal finds the rows that the samples read and makes room for them.
func (b *Batch) Seal() error {
	if err := b.complete(); err != nil {
		return err
	}
	clear(b.shared)
	b.scored = false
	return b.seal()
}

// SealToScore is Seal for scores alone: what all samples have in common is looked up, pooled and computed
// once. Scores have the bits that Seal gives them.
func (b *Batch) SealToScore() error {
	if err := b.complete(); err != nil {
		return err
	}
	b.share()
	b.scored = true
	return b.seal()
}

func (b *Batch) seal() error {
	if err := b.fill(); err != nil {
		return err
	}
	if err := b.e.plan.Shard(&b.shards, b.layout, layout.ShardOptions{Version: layout.V5, Unique: true, Merge: b.e.merge}); err != nil {
		return err
	}
	if err := b.cut(); err != nil {
		return err
	}
	s := &b.shards
	b.sizes = [4]int32{s.BatchSize, s.NFLSize, s.FeatureSize, s.FIDSize}
	b.rows = layout.Rows{
		Version: layout.V5, Embeddings: b.embeddings,
		FIDOffset: s.FIDOffset, FeatureOffset: s.FeatureOffset, NFLOffset: s.NFLOffset, EmbSize: s.EmbSize,
		BatchSize: b.sizes[:1], NFLSize: b.sizes[1:2], FeatureSize: b.sizes[2:3], FIDSize: b.sizes[3:4],
		Once: b.scored,
	}
	b.sealed = true
	return nil
}

// fill puts the ids into the layout: of a feature that all samples share, one sample's.
func (b *Batch) fill() error {
	n := b.Len()
	if err := b.layout.ResetColumns(n); err != nil {
		return err
	}
	for f := range b.ids {
		c, column := b.rowIDs(f), b.e.features[f].column
		err := b.layout.Column(column, n, b.shared[f])
		ids, ends := c.ids, c.ends
		if b.shared[f] {
			if ids = c.of(0); c.ragged {
				ends = ends[:1]
			}
		}
		if err == nil && c.ragged {
			err = b.layout.Ragged(column, ids, ends)
		} else if err == nil {
			err = b.layout.Single(column, ids)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cut gives each block of ids its memory.
func (b *Batch) cut() error {
	floats, ids := 0, 0
	for i, size := range b.shards.EmbSize {
		floats, ids = floats+int(size), ids+len(b.shards.FIDs[i])
	}
	if 4*floats > MaxBatchRows {
		return fmt.Errorf("%w: the rows that its %d samples read have %d bytes, %d are allowed", ErrFull, b.Len(), 4*floats, MaxBatchRows)
	}
	b.values, b.seqs = sized(b.values, floats), sized(b.seqs, ids)
	b.blocks = b.blocks[:0]
	float, id := 0, 0
	for shard := range b.e.shards {
		begin := len(b.blocks)
		for _, t := range b.e.tables {
			i := t.at*b.e.shards + shard
			fids := b.shards.FIDs[i]
			n := len(fids) * t.dim
			b.embeddings[i] = b.values[float : float+n : float+n]
			b.places[i] = int32(len(b.blocks) - begin)
			if n > 0 {
				b.blocks = append(b.blocks, Block{Table: t.name, Dim: t.dim, IDs: fids, Rows: b.embeddings[i], Seqs: b.seqs[id : id+len(fids) : id+len(fids)]})
			}
			float, id = float+n, id+len(fids)
		}
		b.ends[shard] = len(b.blocks)
	}
	return nil
}

// open makes room for the gradients of the rows, which lie as the rows do.
func (b *Batch) open() {
	b.slopes = sized(b.slopes, len(b.values))
	at, block := 0, 0
	for shard := range b.e.shards {
		for _, t := range b.e.tables {
			i := t.at*b.e.shards + shard
			n := len(b.embeddings[i])
			b.gradients[i] = b.slopes[at : at+n : at+n]
			if at += n; n > 0 {
				b.blocks[block].Grads = b.gradients[i]
				block++
			}
		}
	}
}

// Blocks lists what the sealed batch reads of a shard, tables in the spec's order: those of
// which it reads anything.
func (b *Batch) Blocks(shard int) []Block {
	if !b.sealed {
		return nil
	}
	begin := 0
	if shard > 0 {
		begin = b.ends[shard-1]
	}
	return b.blocks[begin:b.ends[shard]]
}

// Place finds the row of the k-th of what a sample's feature Reads in a sealed batch: row i of
// Blocks(shard)[block].
func (b *Batch) Place(feature, sample, k int) (shard, block, i int) {
	s := &b.shards
	row := s.NFLOffset[b.e.features[feature].column]
	if row&layout.SharedBit != 0 {
		row, sample = row&^layout.SharedBit, 0
	}
	word := s.FIDOffset[int(s.FeatureOffset[int(row)+sample])+k]
	at := int(word >> 32)
	shard, block = at%b.e.shards, int(b.places[at])
	return shard, block, int(uint32(word)) / b.Blocks(shard)[block].Dim
}

func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
