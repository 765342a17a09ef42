package layout_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/layout/layouttest"
)

// The oracle: everything from the definition, with maps, scans and float64, sharing no
// code and no offsets with what it judges.

// world is a configuration and a batch: rows[feature][row] are the ids, and shared says
// that row 0 is every sample's.
type world struct {
	cfg    layout.Config
	batch  int
	rows   map[string][][]uint64
	shared map[string]bool
}

func (w *world) feature(name string) layout.Feature {
	for _, f := range w.cfg.Features {
		if f.Name == name {
			return f
		}
	}
	panic("no feature " + name)
}

func (w *world) width(name string) (n int) {
	for _, d := range w.feature(name).SliceDims {
		n += d
	}
	return n
}

// sample returns the ids of a feature for one sample.
func (w *world) sample(name string, s int) []uint64 {
	rows := w.rows[name]
	if len(rows) == 0 {
		return nil
	}
	if w.shared[name] {
		return rows[0]
	}
	return rows[s]
}

func (w *world) featureNames() []string {
	var names []string
	for _, f := range w.cfg.Features {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return names
}

func (w *world) tableNames() []string {
	var names []string
	for _, f := range w.cfg.Features {
		names = append(names, f.Table)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (w *world) sortedOutputs() []layout.Output {
	outs := slices.Clone(w.cfg.Outputs)
	slices.SortFunc(outs, func(a, b layout.Output) int { return cmp.Compare(a.Name, b.Name) })
	return outs
}

// entry is one looked-up row: whose, and of which id.
type entry struct {
	feature string
	fid     uint64
}

// where is the place of one id of one row of one feature.
type where struct {
	table, shard, index int
}

// cut is the naive sharding: lists[table][shard] and, for each feature, row and position,
// where its row is.
type cut struct {
	lists  [][][]entry
	places map[string][][]where
}

func (w *world) cut(unique bool) cut {
	c := cut{places: map[string][][]where{}}
	for t, table := range w.tableNames() {
		lists := make([][]entry, w.cfg.Shards)
		for _, name := range w.featureNames() {
			if w.feature(name).Table != table {
				continue
			}
			begin := make([]int, w.cfg.Shards)
			for s := range lists {
				begin[s] = len(lists[s])
			}
			for _, row := range w.rows[name] {
				var places []where
				for _, fid := range row {
					s := int(fid % uint64(w.cfg.Shards))
					at := -1
					if unique {
						at = slices.Index(lists[s][begin[s]:], entry{name, fid})
					}
					if at < 0 {
						at = len(lists[s]) - begin[s]
						lists[s] = append(lists[s], entry{name, fid})
					}
					places = append(places, where{t, s, begin[s] + at})
				}
				c.places[name] = append(c.places[name], places)
			}
		}
		c.lists = append(c.lists, lists)
	}
	return c
}

// shards is what Shard must make of w.
func (w *world) shards(v layout.Version, unique bool) *layout.Shards {
	c := w.cut(unique)
	out := &layout.Shards{Version: v, BatchSize: int32(w.batch)}
	for _, name := range w.featureNames() {
		start := uint32(len(out.FeatureOffset))
		rows := c.places[name]
		if len(rows) == 0 && (w.shared[name] || w.rows[name] == nil) {
			rows = [][]where{nil} // absent: one empty row for all
			start |= layout.SharedBit
		} else if w.shared[name] {
			start |= layout.SharedBit
		}
		out.NFLOffset = append(out.NFLOffset, start)
		for _, row := range rows {
			out.FeatureOffset = append(out.FeatureOffset, int32(len(out.FIDOffset)))
			for _, at := range row {
				out.FIDOffset = append(out.FIDOffset, w.word(c, v, name, at))
			}
		}
	}
	out.NFLOffset = append(out.NFLOffset, uint32(len(out.FeatureOffset)+1))
	out.FeatureOffset = append(out.FeatureOffset, int32(len(out.FIDOffset)))

	block := func(t, s int) (fids []int64, splits []int64, floats int32) {
		splits = []int64{0}
		for _, name := range w.featureNames() {
			if w.feature(name).Table != w.tableNames()[t] {
				continue
			}
			for _, e := range c.lists[t][s] {
				if e.feature == name {
					fids = append(fids, int64(e.fid))
					floats += int32(w.width(name))
				}
			}
			splits = append(splits, int64(len(fids)))
		}
		return fids, splits, floats
	}
	if v == layout.V4 {
		out.FIDs, out.RowSplits = make([][]int64, 1), make([][]int64, 1)
		for s := range w.cfg.Shards {
			all := 0
			for t := range c.lists {
				fids, splits, floats := block(t, s)
				out.FIDs[0] = append(out.FIDs[0], fids...)
				out.RowSplits[0] = append(out.RowSplits[0], splits...)
				out.TableRowLength = append(out.TableRowLength, int32(len(fids)))
				out.EmbRowLength = append(out.EmbRowLength, floats)
				all += len(fids)
			}
			out.ShardRowLength = append(out.ShardRowLength, int32(all))
		}
		return out
	}
	for t := range c.lists {
		for s := range w.cfg.Shards {
			fids, splits, floats := block(t, s)
			out.FIDs = append(out.FIDs, fids)
			if v >= layout.V2 {
				out.RowSplits = append(out.RowSplits, splits)
			}
			if v == layout.V5 {
				out.RowSplitsSize = append(out.RowSplitsSize, int32(len(splits)))
				out.EmbSize = append(out.EmbSize, floats)
			}
		}
	}
	if v == layout.V5 {
		out.NFLSize, out.FeatureSize, out.FIDSize = int32(len(out.NFLOffset)), int32(len(out.FeatureOffset)), int32(len(out.FIDOffset))
	}
	return out
}

// word is the offset of one id.
func (w *world) word(c cut, v layout.Version, name string, at where) uint64 {
	high := uint64(at.table*w.cfg.Shards + at.shard)
	low := uint64(0)
	switch v {
	case layout.V1:
		low = uint64(at.index)
	case layout.V2:
		high = 0
	parts:
		for t, table := range w.tableNames() {
			for s := range w.cfg.Shards {
				for _, other := range w.featureNames() {
					if w.feature(other).Table != table {
						continue
					}
					if t == at.table && s == at.shard && other == name {
						break parts
					}
					high++
				}
			}
		}
		for _, e := range c.lists[at.table][at.shard][:at.index] {
			if e.feature == name {
				low++
			}
		}
	default:
		for _, e := range c.lists[at.table][at.shard][:at.index] {
			low += uint64(w.width(e.feature))
		}
	}
	return high<<32 | low
}

// value is the float that table holds for an id in one column.
func value(table string, fid uint64, column int) float32 {
	h := fid*0x9E3779B97F4A7C15 ^ uint64(column+1)*0xC2B2AE3D27D4EB4F
	for _, c := range []byte(table) {
		h = h*31 + uint64(c)
	}
	h ^= h >> 29
	h *= 0xBF58476D1CE4E5B9
	return float32(int64(h>>40)-1<<23) / (1 << 22) // in [-2, 2)
}

// embeddings looks up the rows of every list, buffer by buffer as v wants them.
func (w *world) embeddings(c cut, v layout.Version) [][]float32 {
	var out [][]float32
	add := func(list []entry) []float32 {
		buffer := []float32{}
		for _, e := range list {
			for i := range w.width(e.feature) {
				buffer = append(buffer, value(w.feature(e.feature).Table, e.fid, i))
			}
		}
		return buffer
	}
	if v == layout.V4 {
		flat := []float32{}
		for s := range w.cfg.Shards {
			for t := range c.lists {
				flat = append(flat, add(c.lists[t][s])...)
			}
		}
		return [][]float32{flat}
	}
	for t := range c.lists {
		for s := range w.cfg.Shards {
			out = append(out, add(c.lists[t][s]))
		}
	}
	return out
}

// cell is one slice of one output for one sample: n positions of width floats.
type cell struct {
	n, width int
	at       func(position, column int) int // index in the sample's floats
}

// cells tells, for each tensor of o, its floats per sample and the cells in it.
func (w *world) cells(o layout.Output) (sizes []int, tensors []int, cells []cell) {
	n := func(s layout.Slice) int {
		if f := w.feature(s.Feature); f.Pooling == layout.FirstN {
			return f.MaxSequenceLength
		}
		return 1
	}
	total := 0
	for _, s := range o.Slices {
		total += s.End - s.Start
	}
	left := 0
	for i, s := range o.Slices {
		width, n := s.End-s.Start, n(s)
		c := cell{n: n, width: width}
		switch o.Type {
		case layout.None:
			sizes, tensors = append(sizes, n*width), append(tensors, i)
			c.at = func(p, col int) int { return p*width + col }
		case layout.Concat:
			sizes, tensors = []int{n * total}, append(tensors, 0)
			begin := left
			c.at = func(p, col int) int { return p*total + begin + col }
		case layout.Stack:
			sizes, tensors = []int{len(o.Slices) * n * width}, append(tensors, 0)
			c.at = func(p, col int) int { return (i*n+p)*width + col }
		case layout.AddN:
			sizes, tensors = []int{width}, append(tensors, 0)
			c.at = func(p, col int) int { return col }
		}
		left += width
		cells = append(cells, c)
	}
	return sizes, tensors, cells
}

// forward computes every tensor in float64.
func (w *world) forward() [][]float64 {
	var out [][]float64
	for _, o := range w.sortedOutputs() {
		sizes, tensors, cells := w.cells(o)
		base := len(out)
		for _, size := range sizes {
			out = append(out, make([]float64, size*w.batch))
		}
		for i, s := range o.Slices {
			f, c, data, size := w.feature(s.Feature), cells[i], out[base+tensors[i]], sizes[tensors[i]]
			for b := range w.batch {
				ids := w.sample(s.Feature, b)
				for k, fid := range ids {
					for col := range c.width {
						x := float64(value(f.Table, fid, s.Start+col))
						switch f.Pooling {
						case layout.Sum:
							data[b*size+c.at(0, col)] += x
						case layout.Mean:
							data[b*size+c.at(0, col)] += x / float64(len(ids))
						case layout.FirstN:
							if k < f.MaxSequenceLength {
								data[b*size+c.at(k, col)] = x
							}
						}
					}
				}
			}
		}
	}
	return out
}

// gradient computes what every looked-up row receives, in float64, cut as v's buffers;
// size is the sum of the magnitudes, for judging the rounding.
func (w *world) gradient(c cut, v layout.Version, grads [][]float32) (sum, size [][]float64) {
	type key struct{ table, shard, index int }
	rows := map[key][]float64{}
	mags := map[key][]float64{}
	for t := range c.lists {
		for s := range c.lists[t] {
			for i, e := range c.lists[t][s] {
				rows[key{t, s, i}] = make([]float64, w.width(e.feature))
				mags[key{t, s, i}] = make([]float64, w.width(e.feature))
			}
		}
	}
	base := 0
	for _, o := range w.sortedOutputs() {
		sizes, tensors, cells := w.cells(o)
		for i, s := range o.Slices {
			f, cl, data, size := w.feature(s.Feature), cells[i], grads[base+tensors[i]], sizes[tensors[i]]
			for b := range w.batch {
				places := c.places[s.Feature]
				if len(places) == 0 {
					continue
				}
				row := places[0]
				if !w.shared[s.Feature] {
					row = places[b]
				}
				for k, at := range row {
					for col := range cl.width {
						var g float64
						switch {
						case f.Pooling == layout.Sum:
							g = float64(data[b*size+cl.at(0, col)])
						case f.Pooling == layout.Mean:
							g = float64(data[b*size+cl.at(0, col)]) / float64(len(row))
						case k < f.MaxSequenceLength:
							g = float64(data[b*size+cl.at(k, col)])
						}
						rows[key(at)][s.Start+col] += g
						mags[key(at)][s.Start+col] += math.Abs(g)
					}
				}
			}
		}
		base += len(sizes)
	}
	list := func(t, s int) (sum, size []float64) {
		for i := range c.lists[t][s] {
			sum = append(sum, rows[key{t, s, i}]...)
			size = append(size, mags[key{t, s, i}]...)
		}
		return sum, size
	}
	if v == layout.V4 {
		sum, size = make([][]float64, 1), make([][]float64, 1)
		for s := range w.cfg.Shards {
			for t := range c.lists {
				a, b := list(t, s)
				sum[0], size[0] = append(sum[0], a...), append(size[0], b...)
			}
		}
		return sum, size
	}
	for t := range c.lists {
		for s := range w.cfg.Shards {
			a, b := list(t, s)
			sum, size = append(sum, a), append(size, b)
		}
	}
	return sum, size
}

// randomWorld makes a configuration and a batch. With columns, features may be shared or
// absent; equal makes the features of a table equally wide, as version 1 wants.
func randomWorld(rng *rand.Rand, columns, equal bool) *world {
	w := &world{
		cfg:   layout.Config{Shards: 1 + rng.IntN(5)},
		batch: rng.IntN(20), rows: map[string][][]uint64{}, shared: map[string]bool{},
	}
	dims := make([][]int, 1+rng.IntN(4))
	for t := range dims {
		dims[t] = randomDims(rng)
	}
	vocabulary := uint64(1 + rng.IntN(60))
	for i := range 1 + rng.IntN(6) {
		t := rng.IntN(len(dims))
		f := layout.Feature{
			Name: fmt.Sprintf("%c%d", 'a'+rng.IntN(26), i), Table: fmt.Sprintf("t%d", (t*7)%len(dims)*10+t),
			Pooling: []layout.Pooling{layout.Sum, layout.Mean, layout.FirstN}[rng.IntN(3)], SliceDims: dims[t],
		}
		if f.Pooling == layout.FirstN {
			f.MaxSequenceLength = 1 + rng.IntN(3)
		}
		if !equal && rng.IntN(2) == 0 {
			f.SliceDims = randomDims(rng)
		}
		w.cfg.Features = append(w.cfg.Features, f)
		if columns {
			if rng.IntN(5) == 0 {
				continue // absent
			}
			w.shared[f.Name] = rng.IntN(3) == 0
		}
		n := w.batch
		if w.shared[f.Name] {
			n = 1
		}
		w.rows[f.Name] = make([][]uint64, n)
		for r := range n {
			for range rng.IntN(1 + rng.IntN(9)) {
				w.rows[f.Name][r] = append(w.rows[f.Name][r], layouttest.MakeV2(uint32(i)*5000, rng.Uint64N(vocabulary)*0x10001))
			}
		}
	}
	for i := range rng.IntN(6) {
		if o, ok := randomOutput(rng, w, i); ok {
			w.cfg.Outputs = append(w.cfg.Outputs, o)
		}
	}
	return w
}

func randomDims(rng *rand.Rand) []int {
	var dims []int
	for range 1 + rng.IntN(3) {
		dims = append(dims, 1+rng.IntN(12))
	}
	return dims
}

// randomOutput makes an output that Compile accepts.
func randomOutput(rng *rand.Rand, w *world, i int) (layout.Output, bool) {
	o := layout.Output{
		Name: fmt.Sprintf("%c%d", 'a'+rng.IntN(26), i),
		Type: []layout.OutType{layout.Concat, layout.Stack, layout.AddN, layout.None}[rng.IntN(4)],
	}
	first := w.cfg.Features[rng.IntN(len(w.cfg.Features))]
	width := 1 + rng.IntN(w.width(first.Name))
	for range 1 + rng.IntN(5) {
		f := w.cfg.Features[rng.IntN(len(w.cfg.Features))]
		if o.Type != layout.None {
			firstN := f.Pooling == layout.FirstN
			if firstN != (first.Pooling == layout.FirstN) || f.MaxSequenceLength != first.MaxSequenceLength || firstN && o.Type == layout.AddN {
				continue
			}
		}
		n := width
		if o.Type == layout.Concat || o.Type == layout.None {
			n = 1 + rng.IntN(w.width(f.Name))
		}
		if n > w.width(f.Name) {
			continue
		}
		start := rng.IntN(w.width(f.Name) - n + 1)
		o.Slices = append(o.Slices, layout.Slice{Feature: f.Name, Start: start, End: start + n})
	}
	return o, len(o.Slices) > 0
}
