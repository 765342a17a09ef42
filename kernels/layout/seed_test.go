package layout_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/layout/layouttest"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

// The original's fused_embedding_to_layout_test.py, test by test under its own names. Its
// inputs are drawn at random; drawn here are the same things: several tables, the outputs
// bias, vec, ffm1, ffm2 and firstN, all poolings, ids per slot, and for FitPre an example
// batch with shared features. Where the original runs an operation on a GPU, and many
// threads add at once, these run it on a pool; what is asserted stays.

// inferShape is the shapes of an output, as the original's helper of that name.
func inferShape(w *world, o layout.Output) [][]int {
	n := 0
	if f := w.feature(o.Slices[0].Feature); f.Pooling == layout.FirstN {
		n = f.MaxSequenceLength
	}
	width, sum := o.Slices[0].End-o.Slices[0].Start, 0
	for _, s := range o.Slices {
		sum += s.End - s.Start
	}
	dims := map[layout.OutType][]int{
		layout.None: {-1, width}, layout.Concat: {-1, sum}, layout.AddN: {-1, width}, layout.Stack: {-1, len(o.Slices), width},
	}[o.Type]
	if n > 0 {
		dims = slices.Insert(dims, len(dims)-1, n)
	}
	if o.Type != layout.None {
		return [][]int{dims}
	}
	return slices.Repeat([][]int{dims}, len(o.Slices))
}

// pooling is the original's helper: rows of one sample to one value, or to n rows.
func pooling(p layout.Pooling, rows [][]float32, n int) []float64 {
	width := len(rows[0])
	if p == layout.FirstN {
		out := make([]float64, n*width)
		for i, row := range rows[:min(n, len(rows))] {
			for j, v := range row {
				out[i*width+j] = float64(v)
			}
		}
		return out
	}
	out := make([]float64, width)
	for _, row := range rows {
		for j, v := range row {
			out[j] += float64(v)
		}
	}
	if p == layout.Mean {
		for j := range out {
			out[j] /= float64(len(rows))
		}
	}
	return out
}

// seedWorld has every column of every row in exactly one output, so that a gradient of
// ones gives every float of a row the same count.
func seedWorld(columns bool) *world {
	rng := rand.New(rand.NewPCG(2, 2))
	w := &world{batch: 13, rows: map[string][][]uint64{}, shared: map[string]bool{}}
	w.cfg.Shards = 3
	outputs := map[string]*layout.Output{
		"bias": {Type: layout.AddN}, "vec": {Type: layout.Concat}, "ffm1": {Type: layout.Stack},
		"ffm2": {Type: layout.None}, "firstN": {Type: layout.None},
	}
	for i, table := range []string{"table_one", "table_two", "table_one", "table_two", "table_three"} {
		f := layout.Feature{
			Name: fmt.Sprintf("fc_slot_%d", i+200), Table: table, SliceDims: []int{1, 4, 3, 5},
			Pooling: []layout.Pooling{layout.Sum, layout.Mean}[i%2],
		}
		at := 0
		for j, name := range []string{"bias", "vec", "ffm1", "ffm2"} {
			if i == 4 {
				name, f.Pooling, f.MaxSequenceLength = "firstN", layout.FirstN, 3
			}
			o := outputs[name]
			o.Slices = append(o.Slices, layout.Slice{Feature: f.Name, Start: at, End: at + f.SliceDims[j]})
			at += f.SliceDims[j]
		}
		w.cfg.Features = append(w.cfg.Features, f)
		n := w.batch
		if columns && i%2 == 0 {
			w.shared[f.Name], n = true, 1
		}
		for range n {
			var row []uint64
			for range 1 + rng.IntN(5) {
				row = append(row, layouttest.MakeV2(uint32(i+200), rng.Uint64N(20)))
			}
			w.rows[f.Name] = append(w.rows[f.Name], row)
		}
	}
	for name, o := range outputs {
		o.Name = name
		if name != "firstN" {
			o.Shapes = inferShape(w, *o)
		}
		w.cfg.Outputs = append(w.cfg.Outputs, *o)
	}
	return w
}

type seedCase struct {
	version  layout.Version
	shardOp  bool // offsets from the bytes of examples, not from the oracle
	columns  bool // ExampleBatch with shared features
	parallel bool
}

// rows makes what the layout operation reads, and the naive cut it belongs to.
func (c seedCase) rows(t *testing.T, w *world, p *layout.Plan, r layout.Runner) (*layout.Rows, cut) {
	t.Helper()
	s := w.shards(c.version, true)
	if c.shardOp {
		b := p.NewBatch()
		if err := b.ReadExamples(w.examples()); err != nil {
			t.Fatal(err)
		}
		if err := p.Shard(s, b, layout.ShardOptions{Version: c.version, Unique: true, Runner: r}); err != nil {
			t.Fatal(err)
		}
	}
	naive := w.cut(true)
	return s.Rows(w.embeddings(naive, c.version)), naive
}

func (c seedCase) runner(t *testing.T) layout.Runner {
	if !c.parallel {
		return nil
	}
	pool := partest.New(t, 8)
	return pool
}

// output compares every tensor with pooled rows, slice by slice.
func (c seedCase) output(t *testing.T) {
	w := seedWorld(c.columns)
	p, r := compile(t, w.cfg), c.runner(t)
	rows, _ := c.rows(t, w, p, r)
	got, err := p.Forward(nil, rows, r)
	if err != nil {
		t.Fatal(err)
	}
	base := 0
	for _, o := range w.sortedOutputs() {
		sizes, tensors, cells := w.cells(o)
		for b := range w.batch {
			truth := make([][]float64, len(sizes))
			for i, size := range sizes {
				truth[i] = make([]float64, size)
			}
			for i, s := range o.Slices {
				f := w.feature(s.Feature)
				var embeddings [][]float32
				for _, fid := range w.sample(s.Feature, b) {
					row := make([]float32, s.End-s.Start)
					for j := range row {
						row[j] = value(f.Table, fid, s.Start+j)
					}
					embeddings = append(embeddings, row)
				}
				for k, v := range pooling(f.Pooling, embeddings, f.MaxSequenceLength) {
					truth[tensors[i]][cells[i].at(k/cells[i].width, k%cells[i].width)] += v
				}
			}
			for i, size := range sizes {
				data := got[base+i].Data[b*size : (b+1)*size]
				for k, v := range truth[i] {
					if math.Abs(float64(data[k])-v) > 1e-8+1e-5*math.Abs(v) { // numpy's allclose
						t.Fatalf("%s, tensor %d, sample %d: [%d] is %g, want %g", o.Name, i, b, k, data[k], v)
					}
				}
			}
		}
		base += len(sizes)
	}
	if base != len(got) {
		t.Fatalf("%d tensors, want %d", len(got), base)
	}
}

// gradient gives every tensor a gradient of ones: each row then gets, in every float, the
// number of times it was used.
func (c seedCase) gradient(t *testing.T) {
	w := seedWorld(c.columns)
	p, r := compile(t, w.cfg), c.runner(t)
	rows, naive := c.rows(t, w, p, r)
	count := map[entry]float64{}
	for _, f := range w.cfg.Features {
		for b := range w.batch {
			ids := w.sample(f.Name, b)
			for i, fid := range ids {
				switch {
				case f.Pooling == layout.Sum, f.Pooling == layout.FirstN && i < f.MaxSequenceLength:
					count[entry{f.Name, fid}]++
				case f.Pooling == layout.Mean:
					count[entry{f.Name, fid}] += 1 / float64(len(ids))
				}
			}
		}
	}
	var ones [][]float32
	outputs, shapes := p.Tensors(w.batch)
	for i := range outputs {
		n := 1
		for _, d := range shapes[i] {
			n *= d
		}
		ones = append(ones, slices.Repeat([]float32{1}, n))
	}
	got, err := p.Gradient(nil, rows, ones, r)
	if err != nil {
		t.Fatal(err)
	}
	var lists [][]entry // in the order of the buffers
	for t := range naive.lists {
		lists = append(lists, naive.lists[t]...)
	}
	if c.version == layout.V4 {
		var all []entry
		for s := range w.cfg.Shards {
			for t := range naive.lists {
				all = append(all, naive.lists[t][s]...)
			}
		}
		lists = [][]entry{all}
	}
	for i, list := range lists {
		left := got[i]
		for _, e := range list {
			for j, g := range left[:w.width(e.feature)] {
				if math.Abs(float64(g)-count[e]) > 1e-5*math.Abs(count[e]) {
					t.Fatalf("%s, id %#x, float %d: %g, want %g", e.feature, e.fid, j, g, count[e])
				}
			}
			left = left[w.width(e.feature):]
		}
		if len(left) > 0 {
			t.Fatalf("buffer %d has %d floats too many", i, len(left))
		}
	}
}

func TestFusedEmbeddingToLayout(t *testing.T) { seedCase{version: layout.V1}.output(t) }
func TestFusedEmbeddingToLayoutUseShardOp(t *testing.T) {
	seedCase{version: layout.V2, shardOp: true}.output(t)
}
func TestFusedEmbeddingToLayoutUseShardOp3(t *testing.T) {
	seedCase{version: layout.V3, shardOp: true}.output(t)
}
func TestFusedEmbeddingToLayoutUseShardOp3Gpu(t *testing.T) {
	seedCase{version: layout.V3, shardOp: true, parallel: true}.output(t)
}
func TestFusedEmbeddingToLayoutUseShardOp4(t *testing.T) {
	seedCase{version: layout.V4, shardOp: true}.output(t)
}
func TestFusedEmbeddingToLayoutUseShardOp4Gpu(t *testing.T) {
	seedCase{version: layout.V4, shardOp: true, parallel: true}.output(t)
}
func TestFusedEmbeddingToLayoutUseShardOp5(t *testing.T) { // beyond the seed
	seedCase{version: layout.V5, shardOp: true}.output(t)
}
func TestFusedEmbeddingToLayoutParallel(t *testing.T) { // parallel_flag 0, and here 1 too
	seedCase{version: layout.V1}.output(t)
	seedCase{version: layout.V1, parallel: true}.output(t)
}

func TestFusedEmbeddingToLayoutGrad(t *testing.T) { seedCase{version: layout.V1}.gradient(t) }
func TestFusedEmbeddingToLayoutGradUseShardOp(t *testing.T) {
	seedCase{version: layout.V2, shardOp: true}.gradient(t)
}
func TestFusedEmbeddingToLayoutGradUseShardOp3(t *testing.T) {
	seedCase{version: layout.V3, shardOp: true}.gradient(t)
}
func TestFusedEmbeddingToLayoutGradUseShardOp3Gpu(t *testing.T) {
	seedCase{version: layout.V3, shardOp: true, parallel: true}.gradient(t)
}
func TestFusedEmbeddingToLayoutGradUseShardOp4(t *testing.T) {
	seedCase{version: layout.V4, shardOp: true}.gradient(t)
}
func TestFusedEmbeddingToLayoutGradUseShardOp4Gpu(t *testing.T) {
	seedCase{version: layout.V4, shardOp: true, parallel: true}.gradient(t)
}
func TestFusedEmbeddingToLayoutGradUseShardOp5(t *testing.T) {
	seedCase{version: layout.V5, shardOp: true, parallel: true}.gradient(t)
}

// FusedEmbeddingToLayoutFitPreTest.

func TestFitPreFusedEmbeddingToLayout(t *testing.T) {
	w := seedWorld(true)
	if s := w.shards(layout.V1, true); s.NFLOffset[0]&layout.SharedBit == 0 || s.NFLOffset[1]&layout.SharedBit != 0 {
		t.Fatalf("nfl_offset %x: feature 0 is shared, feature 1 is not", s.NFLOffset)
	}
	seedCase{version: layout.V1, columns: true}.output(t)
}

func TestFitPreFusedEmbeddingToLayoutGrad(t *testing.T) {
	seedCase{version: layout.V1}.gradient(t)
	seedCase{version: layout.V1, columns: true}.gradient(t) // beyond the seed: shared features
}
