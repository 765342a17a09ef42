package runtime

import (
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/nn"
)

// ErrFull says that a batch has as many samples as its engine allows.
var ErrFull = errors.New("the batch is full")

// errUnsealed says that a batch was changed since it was sealed.
var errUnsealed = errors.New("the batch is not sealed: seal it and look its rows up first")

// Batch is a number of samples, the rows that they read and the gradients of these. It is
// filled by Add, or column by column, and used again after Reset. Its memory grows to the
// largest batch there was and is bounded by the engine's number of samples.
type Batch struct {
	e      *Engine
	ids    [][]int64 // by feature of the spec: an id for each sample
	labels []float32
	sealed bool

	layout     *layout.Batch
	shards     layout.Shards
	rows       layout.Rows
	sizes      [4]int32    // behind the slices of one element in rows
	embeddings [][]float32 // by block of the plan, all in values
	gradients  [][]float32 // likewise, all in slopes
	values     []float32
	slopes     []float32
	seqs       []uint64
	blocks     []Block // shard by shard, tables in the spec's order
	ends       []int   // by shard: where its blocks end
	places     []int32 // by block of the plan: where it is among its shard's blocks

	input  []layout.Tensor
	in     [][]float32 // the tensors of input, then the labels
	out    nn.Outputs  // of a step; Dense are its last
	scored nn.Outputs

	// Dense are the gradients of the dense variables, which Train sets.
	Dense [][]float32
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
	b := &Batch{e: e, layout: e.plan.NewBatch(), ids: make([][]int64, len(e.features))}
	b.out.Values = make([][]float32, e.at.dense+len(e.vars))
	b.Dense = b.out.Values[e.at.dense:]
	blocks := len(e.tables) * e.shards
	b.embeddings, b.gradients = make([][]float32, blocks), make([][]float32, blocks)
	b.blocks, b.places, b.ends = make([]Block, 0, blocks), make([]int32, blocks), make([]int, e.shards)
	return b
}

// Len is the number of samples.
func (b *Batch) Len() int { return len(b.ids[0]) }

// Labels are those of the samples, in their order.
func (b *Batch) Labels() []float32 { return b.labels }

// Reset empties the batch.
func (b *Batch) Reset() { b.Truncate(0) }

// Truncate keeps the first n samples: with an earlier Len, it takes back what was added since.
func (b *Batch) Truncate(n int) {
	for f := range b.ids {
		b.ids[f] = b.ids[f][:min(n, len(b.ids[f]))]
	}
	b.labels, b.sealed = b.labels[:min(n, len(b.labels))], false
}

// Add appends a sample with one id of each feature, in the spec's order; an error leaves the
// batch as it was.
func (b *Batch) Add(ids []int64, label float32) error {
	if len(ids) != len(b.ids) {
		return fmt.Errorf("a sample of %d ids: the model has %d features", len(ids), len(b.ids))
	}
	for f, id := range ids {
		if err := b.e.owns(f, id); err != nil {
			return err
		}
	}
	if b.Len() == b.e.samples {
		return fmt.Errorf("%w: it has %d samples", ErrFull, b.e.samples)
	}
	for f, id := range ids {
		b.ids[f] = append(b.ids[f], id)
	}
	b.labels, b.sealed = append(b.labels, label), false
	return nil
}

// Column appends, after Reset, the ids of one feature for all samples, which have no labels.
// Seal refuses features of different lengths.
func (b *Batch) Column(f int, ids []int64) error {
	for _, id := range ids {
		if err := b.e.owns(f, id); err != nil {
			return err
		}
	}
	if len(b.ids[f])+len(ids) > b.e.samples {
		return fmt.Errorf("%w: it has %d samples at most", ErrFull, b.e.samples)
	}
	b.ids[f], b.sealed = append(b.ids[f], ids...), false
	return nil
}

// owns refuses an id of another slot than the feature's.
func (e *Engine) owns(f int, id int64) error {
	if slot := modelspec.SlotOf(id); slot != e.features[f].slot {
		return fmt.Errorf("feature %q: id %#x is of slot %d, the feature's is %d", e.features[f].name, id, slot, e.features[f].slot)
	}
	return nil
}

// Seal finds the rows that the samples read and makes room for them.
func (b *Batch) Seal() error {
	if err := b.layout.Reset(b.Len()); err != nil {
		return err
	}
	for f := range b.ids {
		if len(b.ids[f]) != b.Len() {
			return fmt.Errorf("feature %q has ids of %d samples, feature %q of %d: give each one for each sample", b.e.features[f].name, len(b.ids[f]), b.e.features[0].name, b.Len())
		}
		if err := b.layout.Single(b.e.features[f].column, b.ids[f]); err != nil {
			return err
		}
	}
	if err := b.e.plan.Shard(&b.shards, b.layout, layout.ShardOptions{Version: layout.V5, Unique: true}); err != nil {
		return err
	}
	b.cut()
	s := &b.shards
	b.sizes = [4]int32{s.BatchSize, s.NFLSize, s.FeatureSize, s.FIDSize}
	b.rows = layout.Rows{
		Version: layout.V5, Embeddings: b.embeddings,
		FIDOffset: s.FIDOffset, FeatureOffset: s.FeatureOffset, NFLOffset: s.NFLOffset, EmbSize: s.EmbSize,
		BatchSize: b.sizes[:1], NFLSize: b.sizes[1:2], FeatureSize: b.sizes[2:3], FIDSize: b.sizes[3:4],
	}
	b.sealed = true
	return nil
}

// cut gives each block of ids its memory.
func (b *Batch) cut() {
	floats, ids := 0, 0
	for i, size := range b.shards.EmbSize {
		floats, ids = floats+int(size), ids+len(b.shards.FIDs[i])
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

// ID is that of a sample's feature.
func (b *Batch) ID(feature, sample int) int64 { return b.ids[feature][sample] }

// Place finds the row of a sample's feature in a sealed batch: row i of Blocks(shard)[block].
func (b *Batch) Place(feature, sample int) (shard, block, i int) {
	s := &b.shards
	word := s.FIDOffset[s.FeatureOffset[int(s.NFLOffset[b.e.features[feature].column])+sample]]
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
