package layout

import (
	"fmt"
	"math"
)

// Rows are looked-up rows and the offsets that [Plan.Shard] made for them: what
// [Plan.Forward] and [Plan.Gradient] read. They may come from another process; nothing in
// them is trusted.
type Rows struct {
	Version Version

	// Embeddings has, in V1 to V3, the rows of each block (table·shards+shard) one after
	// another, in the order of the block's ids; in V4 one buffer, shard by shard and in
	// each table by table; in V5 for each block the rows of all requests one after another.
	// Gradient reads only the lengths.
	Embeddings [][]float32

	FIDOffset     []uint64
	FeatureOffset []int32
	NFLOffset     []uint32
	BatchSize     []int32 // one element; in V5 one for each request

	RowSplits    [][]int64 // V2: of each block, as in [Shards]
	EmbRowLength []int32   // V4: floats at shard·tables+table

	// V5: how much of NFLOffset, FeatureOffset and FIDOffset each request has; EmbSize has
	// for each request the floats of each block.
	NFLSize, FeatureSize, FIDSize []int32
	EmbSize                       []int32

	// Once has Forward give a tensor all of whose slices all samples share one row instead of a copy for
	// each. Several requests share nothing.
	Once bool
}

// Rows says how embeddings, the rows of s.FIDs list by list, belong to s. It shares s's
// memory.
func (s *Shards) Rows(embeddings [][]float32) *Rows {
	r := &Rows{
		Version: s.Version, Embeddings: embeddings,
		FIDOffset: s.FIDOffset, FeatureOffset: s.FeatureOffset, NFLOffset: s.NFLOffset,
		BatchSize: []int32{s.BatchSize},
	}
	switch s.Version {
	case V2:
		r.RowSplits = s.RowSplits
	case V4:
		r.EmbRowLength = s.EmbRowLength
	case V5:
		r.NFLSize, r.FeatureSize, r.FIDSize = []int32{s.NFLSize}, []int32{s.FeatureSize}, []int32{s.FIDSize}
		r.EmbSize = s.EmbSize
	}
	return r
}

// request is one checked request: from here on every offset is within its block.
type request struct {
	blocks [][]float32 // by table·shards+shard
	words  []uint64    // block<<32 | float
	rows   []int32     // FeatureOffset
	nfl    []uint32
	batch  int
	sample int  // its first sample in the tensors
	apart  bool // no two features touch the same floats
}

// row returns the words of feature f's row for a sample.
func (r *request) row(f, sample int) []uint64 {
	i := int(r.nfl[f] &^ SharedBit)
	if r.nfl[f]&SharedBit == 0 {
		i += sample
	}
	return r.words[r.rows[i]:r.rows[i+1]]
}

// work is what one call needs and the next can use again.
type work struct {
	requests []request
	blocks   [][]float32
	words    []uint64
	reach    []reach
	offsets  []int64
	cells    []float32   // what all samples share, pooled
	scratch  [][]float32 // by feature: of its gradient

	shard   each[sharding]
	forward each[forwarding]
	spread  each[spreading]
	clear   each[[][]float32]
}

// reach is the part of a block that one feature touches.
type reach struct{ lo, hi int64 }

func (p *Plan) takeWork() *work {
	w, _ := p.works.Get().(*work)
	if w == nil {
		w = &work{}
	}
	return w
}

// giveWork lets go of everything that belongs to the caller.
func (p *Plan) giveWork(w *work) {
	clear(w.requests)
	clear(w.blocks)
	w.requests = w.requests[:0]
	p.works.Put(w)
}

// check validates rows, whose blocks are cut from buffers (the embeddings, or the
// gradients of the same lengths), and returns the samples of all requests.
func (p *Plan) check(w *work, r *Rows, buffers [][]float32) (batch int, err error) {
	if r.Version < V1 || r.Version > V5 {
		return 0, fmt.Errorf("layout: version %d: there are 1 to 5", r.Version)
	}
	if err := p.equalWidths(r.Version); err != nil {
		return 0, err
	}
	n := len(r.BatchSize)
	if n == 0 || r.Version != V5 && n != 1 {
		return 0, fmt.Errorf("layout: %d batch sizes: version 5 has one for each request, the others one", n)
	}
	if r.Version == V5 && len(r.EmbSize) != n*p.Blocks() {
		return 0, fmt.Errorf("layout: emb_size has %d elements: there must be %d, tables × shards for each request", len(r.EmbSize), n*p.Blocks())
	}
	w.requests = grow(w.requests, n)
	w.blocks = grow(w.blocks, n*p.Blocks())
	nfl, rows, words := r.NFLOffset, r.FeatureOffset, r.FIDOffset
	for i := range w.requests {
		q := &w.requests[i]
		size := r.BatchSize[i]
		if size < 0 || int(size) > p.limits.Batch-batch {
			return 0, fmt.Errorf("layout: batch size %d: together they must be 0 to the %d that Limits.Batch allows", size, p.limits.Batch)
		}
		*q = request{nfl: nfl, rows: rows, words: words, batch: int(size), sample: batch}
		q.blocks = w.blocks[i*p.Blocks() : (i+1)*p.Blocks()]
		batch += int(size)
		if r.Version != V5 {
			continue
		}
		if q.nfl, nfl, err = cut(nfl, r.NFLSize, i, n, "nfl_size"); err != nil {
			return 0, err
		}
		if q.rows, rows, err = cut(rows, r.FeatureSize, i, n, "feature_size"); err != nil {
			return 0, err
		}
		if q.words, words, err = cut(words, r.FIDSize, i, n, "fid_size"); err != nil {
			return 0, err
		}
	}
	if r.Version == V5 && len(nfl)+len(rows)+len(words) != 0 {
		return 0, fmt.Errorf("layout: nfl_size, feature_size and fid_size leave %d, %d and %d offsets over", len(nfl), len(rows), len(words))
	}
	if err := p.cutBlocks(w, r, buffers); err != nil {
		return 0, err
	}
	for i := range w.requests {
		if err := p.checkRequest(w, &w.requests[i], r); err != nil {
			return 0, fmt.Errorf("layout: request %d: %w", i, err)
		}
	}
	return batch, nil
}

// cut takes the first sizes[i] elements of s.
func cut[T any](s []T, sizes []int32, i, n int, name string) (head, tail []T, err error) {
	if len(sizes) != n {
		return nil, nil, fmt.Errorf("layout: %s has %d elements for %d requests", name, len(sizes), n)
	}
	if sizes[i] < 0 || int(sizes[i]) > len(s) {
		return nil, nil, fmt.Errorf("layout: %s[%d] is %d, and %d offsets are left", name, i, sizes[i], len(s))
	}
	return s[:sizes[i]], s[sizes[i]:], nil
}

// cutBlocks gives each request its blocks.
func (p *Plan) cutBlocks(w *work, r *Rows, buffers [][]float32) error {
	n := p.Blocks()
	if r.Version == V4 {
		if len(buffers) != 1 || len(r.EmbRowLength) != n {
			return fmt.Errorf("layout: version 4 has one buffer and %d fid_list_emb_row_lenth (tables × shards), not %d and %d", n, len(buffers), len(r.EmbRowLength))
		}
		rest := buffers[0]
		for i, size := range r.EmbRowLength {
			if size < 0 || int(size) > len(rest) {
				return fmt.Errorf("layout: fid_list_emb_row_lenth[%d] is %d, and %d floats are left", i, size, len(rest))
			}
			shard, t := i/len(p.tables), i%len(p.tables)
			w.requests[0].blocks[t*p.shards+shard], rest = rest[:size], rest[size:]
		}
		if len(rest) > 0 {
			return fmt.Errorf("layout: fid_list_emb_row_lenth leaves %d floats over", len(rest))
		}
		return nil
	}
	if len(buffers) != n {
		return fmt.Errorf("layout: %d embedding buffers: there must be %d, tables × shards", len(buffers), n)
	}
	if r.Version != V5 {
		copy(w.requests[0].blocks, buffers)
		return nil
	}
	for i, rest := range buffers {
		for q := range w.requests {
			size := r.EmbSize[q*n+i]
			if size < 0 || int(size) > len(rest) {
				return fmt.Errorf("layout: emb_size[%d] is %d, and %d floats are left in buffer %d", q*n+i, size, len(rest), i)
			}
			w.requests[q].blocks[i], rest = rest[:size], rest[size:]
		}
		if len(rest) > 0 {
			return fmt.Errorf("layout: emb_size leaves %d floats of buffer %d over", len(rest), i)
		}
	}
	return nil
}

// checkRequest checks the row structure, resolves every word and finds out whether
// features keep apart.
func (p *Plan) checkRequest(w *work, q *request, r *Rows) error {
	rows := len(q.rows) - 1
	if rows < 0 || q.rows[0] != 0 || int(q.rows[rows]) != len(q.words) {
		return fmt.Errorf("feature_offset must begin with 0 and end with %d, the length of fid_offset", len(q.words))
	}
	for i := range rows {
		if q.rows[i] > q.rows[i+1] {
			return fmt.Errorf("feature_offset falls from %d to %d at %d", q.rows[i], q.rows[i+1], i)
		}
	}
	if len(q.nfl) != len(p.features)+1 {
		return fmt.Errorf("nfl_offset has %d elements for %d features: there must be one more than features", len(q.nfl), len(p.features))
	}
	// The original writes rows + 1 at the end; rows is what the name promises.
	if end := int(q.nfl[len(p.features)] &^ SharedBit); end != rows+1 && end != rows {
		return fmt.Errorf("nfl_offset ends with %d for %d rows", end, rows)
	}
	var v2 []int64
	if r.Version == V2 {
		var err error
		if v2, err = p.partOffsets(w, q, r.RowSplits); err != nil {
			return err
		}
	}
	if r.Version <= V2 {
		w.words = grow(w.words, len(q.words))
	}
	w.reach = grow(w.reach, len(p.features)*p.shards)
	next := 0
	for f := range p.features {
		at, n := int(q.nfl[f]&^SharedBit), q.batch
		if q.nfl[f]&SharedBit != 0 {
			n = 1
		}
		if at != next || n > rows-at {
			return fmt.Errorf("nfl_offset[%d] (feature %q) is row %d: it must be %d, with %d of %d rows after it", f, p.features[f].Name, at, next, n, rows)
		}
		next = at + n
	}
	if next != rows {
		return fmt.Errorf("nfl_offset covers %d of %d rows", next, rows)
	}
	for f, begin := range q.nfl[:len(p.features)] {
		lo, hi := int(q.rows[begin&^SharedBit]), len(q.words)
		if f+1 < len(p.features) {
			hi = int(q.rows[q.nfl[f+1]&^SharedBit])
		}
		out := q.words[lo:hi]
		if r.Version <= V2 {
			out = w.words[lo:hi]
		}
		if err := p.resolve(w, q, f, r.Version, q.words[lo:hi], out, v2); err != nil {
			return fmt.Errorf("feature %q: %w", p.features[f].Name, err)
		}
	}
	if r.Version <= V2 {
		q.words = w.words
	}
	q.apart = p.keepApart(w)
	return nil
}

// resolve checks the words of feature f and turns those of versions 1 and 2 into floats.
func (p *Plan) resolve(w *work, q *request, f int, v Version, in, out []uint64, v2 []int64) error {
	feature := &p.features[f]
	t := &p.tables[feature.table]
	width := int64(feature.width)
	reaches := w.reach[f*p.shards : (f+1)*p.shards]
	for i := range reaches {
		reaches[i] = reach{lo: math.MaxInt64}
	}
	first := uint64(feature.table * p.shards)
	for i, word := range in {
		at, low := word>>32, int64(word&math.MaxUint32)
		shard := at - first
		var float, end int64
		switch v {
		case V2:
			at -= uint64(t.parts + feature.nth)
			shard = at / uint64(len(t.features))
			if at%uint64(len(t.features)) != 0 || shard >= uint64(p.shards) {
				return fmt.Errorf("fid_offset %#x names part %d, which is another feature's", word, word>>32)
			}
			bounds := v2[2*(f*p.shards+int(shard)):]
			float, end = bounds[0]+low*width, bounds[1]
			out[i] = (first+shard)<<32 | uint64(uint32(float))
		default:
			if shard >= uint64(p.shards) {
				return fmt.Errorf("fid_offset %#x names block %d, which is not of table %q", word, at, t.name)
			}
			float, end = low, int64(len(q.blocks[first+shard]))
			if v == V1 {
				float = low * width
				out[i] = at<<32 | uint64(uint32(float))
			}
		}
		if float > end-width {
			return fmt.Errorf("fid_offset %#x begins at float %d of shard %d, whose rows of %d end at %d", word, float, shard, width, end)
		}
		if float > math.MaxUint32 {
			return fmt.Errorf("fid_offset %#x is beyond 2^32 floats", word)
		}
		b := &reaches[shard]
		b.lo, b.hi = min(b.lo, float), max(b.hi, float+width)
	}
	return nil
}

// partOffsets turns the row splits of version 2 into the floats at which each part begins
// and ends, at 2·(feature·shards+shard).
func (p *Plan) partOffsets(w *work, q *request, splits [][]int64) ([]int64, error) {
	if len(splits) != p.Blocks() {
		return nil, fmt.Errorf("%d fid_list_row_splits: there must be %d, tables × shards", len(splits), p.Blocks())
	}
	w.offsets = grow(w.offsets, 2*len(p.features)*p.shards)
	for t := range p.tables {
		for shard := range p.shards {
			i := t*p.shards + shard
			s, features, size := splits[i], p.tables[t].features, int64(len(q.blocks[i]))
			if len(s) != len(features)+1 || s[0] != 0 {
				return nil, fmt.Errorf("fid_list_row_splits[%d] %v must have %d elements, the first 0", i, s, len(features)+1)
			}
			at := int64(0)
			for nth, f := range features {
				n := s[nth+1] - s[nth]
				if s[nth+1] < s[nth] || n > size-at {
					return nil, fmt.Errorf("fid_list_row_splits[%d] has %d rows of feature %q in the remaining %d floats", i, n, p.features[f].Name, size-at)
				}
				w.offsets[2*(f*p.shards+shard)] = at
				at += n * int64(p.features[f].width)
				w.offsets[2*(f*p.shards+shard)+1] = at
			}
			if at != size {
				return nil, fmt.Errorf("fid_list_row_splits[%d] speaks of %d floats and embedding buffer %d has %d", i, at, i, size)
			}
		}
	}
	return w.offsets, nil
}

// keepApart reports whether, in every block, each feature's floats end before those of
// the next begin, as [Plan.Shard] lays them out.
func (p *Plan) keepApart(w *work) bool {
	for t := range p.tables {
		for shard := range p.shards {
			end := int64(0)
			for _, f := range p.tables[t].features {
				r := w.reach[f*p.shards+shard]
				if r.hi == 0 {
					continue
				}
				if r.lo < end {
					return false
				}
				end = r.hi
			}
		}
	}
	return true
}
