package layout

import (
	"fmt"
	"math"
)

// SharedBit in a word of NFLOffset says that the feature has one row for all samples.
const SharedBit = 1 << 31

// Watermark is how many ids one task of [Plan.Shard] takes at most, unless one feature
// alone has more: the original's single_thread_feature_watermark.
const Watermark = 320000

// ShardOptions choose what [Plan.Shard] makes.
type ShardOptions struct {
	Version Version

	// Unique keeps each id once per feature and shard, where it was first seen; offsets
	// then repeat. Ids of different features of a table are not merged.
	Unique bool

	// Merge, beside Unique and in V3 and V5, keeps an id that several features of a table
	// have once for all of them. RowSplits then say nothing.
	Merge bool

	Runner    Runner // nil is serial
	Watermark int    // 0 is [Watermark]
}

// Shards is a batch cut by table and shard. Block means table·shards+shard. The zero
// value is ready; reusing one reuses its memory, so a result is valid until the next.
//
// FIDOffset has a word for each id in the order feature, row, id. Its high and low halves
// are:
//
//	V1          block                     row in the block
//	V2          part: Σ over earlier      row in the part
//	            tables of features·shards
//	            + shard·features of the
//	            table + feature in it
//	V3, V4, V5  block                     float in the block
//
// FeatureOffset[r] is where row r begins in FIDOffset, and its last element the number of
// ids. NFLOffset[f] is the first row of feature f, with [SharedBit] for one that all
// samples share; its last element is rows + 1 (not rows), as the original writes it.
type Shards struct {
	Version   Version
	BatchSize int32

	// FIDs are the ids to look up, block by block. V4 has one list, shard by shard and in
	// each table by table.
	FIDs [][]int64

	// RowSplits (not in V1) has, for each block, where its features begin in its ids:
	// features of the table + 1 numbers, the first 0. V4 has one list, ordered as its ids.
	RowSplits [][]int64

	FIDOffset     []uint64
	FeatureOffset []int32
	NFLOffset     []uint32

	RowSplitsSize []int32 // V5: length of each of RowSplits

	TableRowLength []int32 // V4: ids at shard·tables+table
	ShardRowLength []int32 // V4: ids of each shard
	EmbRowLength   []int32 // V4: floats at shard·tables+table

	EmbSize     []int32 // V5: floats of each block
	NFLSize     int32   // V5: features + 1
	FeatureSize int32   // V5: rows + 1
	FIDSize     int32   // V5: ids

	flat   []int64 // behind FIDs
	splits []int64 // behind RowSplits
	blocks []block
	parts  []part // at feature·shards + shard
	tasks  []int  // task i has features tasks[i] to tasks[i+1]

	moved, floats []uint32 // of Merge: where a row of a block has gone, and where that one's floats are
}

type block struct{ rows, floats int64 }

// part is a feature's share of a block.
type part struct {
	count uint32 // ids
	row   int64  // first row in the block
	float int64  // first float in the block
	flat  int64  // first id in Shards.flat
}

// Shard cuts b, a batch of this plan, into dst. Whatever runs it, the result is the same.
// It fails when the version cannot say what the batch holds: features of one table that
// differ in width (V1), or a block beyond 2^32 floats (V3 to V5; 2^31 where sizes are
// told, V4 and V5).
func (p *Plan) Shard(dst *Shards, b *Batch, opt ShardOptions) error {
	if b.plan != p {
		return fmt.Errorf("layout: the batch was made by another plan")
	}
	if opt.Version < V1 || opt.Version > V5 {
		return fmt.Errorf("layout: version %d: there are 1 to 5", opt.Version)
	}
	if err := p.equalWidths(opt.Version); err != nil {
		return err
	}
	*dst = Shards{
		Version: opt.Version, BatchSize: int32(b.size),
		FIDs: dst.FIDs, RowSplits: dst.RowSplits,
		FIDOffset: dst.FIDOffset, FeatureOffset: dst.FeatureOffset, NFLOffset: dst.NFLOffset,
		RowSplitsSize: dst.RowSplitsSize[:0], TableRowLength: dst.TableRowLength[:0],
		ShardRowLength: dst.ShardRowLength[:0], EmbRowLength: dst.EmbRowLength[:0], EmbSize: dst.EmbSize[:0],
		flat: dst.flat, splits: dst.splits, blocks: dst.blocks, parts: dst.parts, tasks: dst.tasks, moved: dst.moved, floats: dst.floats,
	}
	if err := p.offsets(dst, b); err != nil {
		return err
	}
	if opt.Merge && (!opt.Unique || opt.Version != V3 && opt.Version != V5) {
		return fmt.Errorf("layout: features are merged in versions 3 and 5 only, and where ids are unique")
	}
	p.cutTasks(dst, b, opt)
	x := sharding{p, dst, b, opt.Unique}
	w := p.takeWork()
	defer p.giveWork(w)
	w.shard.run(opt.Runner, len(dst.tasks)-1, x, sharding.number)
	if err := p.place(dst); err != nil {
		return err
	}
	w.shard.run(opt.Runner, len(dst.tasks)-1, x, sharding.fill)
	if opt.Merge {
		p.merge(dst)
	}
	return nil
}

// sharding is what the tasks of one Shard have in common.
type sharding struct {
	p      *Plan
	dst    *Shards
	b      *Batch
	unique bool
}

func (x sharding) number(task int) {
	d, _ := x.p.dedups.Get().(*dedup)
	if d == nil {
		d = &dedup{}
	}
	for f := x.dst.tasks[task]; f < x.dst.tasks[task+1]; f++ {
		x.p.number(x.dst, x.b, f, x.unique, d)
	}
	x.p.dedups.Put(d)
}

func (x sharding) fill(task int) {
	for f := x.dst.tasks[task]; f < x.dst.tasks[task+1]; f++ {
		x.p.fill(x.dst, x.b, f)
	}
}

// equalWidths is what version 1 asks of a plan.
func (p *Plan) equalWidths(v Version) error {
	for _, t := range p.tables {
		if v == V1 && t.width == 0 {
			return fmt.Errorf("layout: version 1 needs features of one width in table %q; use version 2 or later", t.name)
		}
	}
	return nil
}

// offsets writes the row structure: FeatureOffset and NFLOffset.
func (p *Plan) offsets(dst *Shards, b *Batch) error {
	rows := 0
	for f := range b.cols {
		rows += b.cols[f].n
	}
	if rows > maxRows+len(b.cols) {
		return fmt.Errorf("layout: %d rows are more than offsets can say", rows)
	}
	dst.NFLOffset = grow(dst.NFLOffset, len(b.cols)+1)
	dst.FeatureOffset = grow(dst.FeatureOffset, rows+1)
	row, id := 0, 0
	for f := range b.cols {
		dst.NFLOffset[f] = uint32(row)
		if b.cols[f].shared {
			dst.NFLOffset[f] |= SharedBit
		}
		for _, s := range b.spans(f) {
			dst.FeatureOffset[row] = int32(id)
			id += int(s.n)
			row++
		}
	}
	if id > math.MaxInt32 { // Slotted may name one id for two features
		return fmt.Errorf("layout: %d ids are more than offsets can say", id)
	}
	dst.NFLOffset[len(b.cols)] = uint32(row + 1)
	dst.FeatureOffset[row] = int32(id)
	dst.FIDOffset = grow(dst.FIDOffset, id)
	dst.parts = grow(dst.parts, len(p.features)*p.shards)
	dst.blocks = grow(dst.blocks, p.Blocks())
	return nil
}

// cutTasks makes groups of neighbouring features of at most opt.Watermark ids, and small
// enough for several workers to find work.
func (p *Plan) cutTasks(dst *Shards, b *Batch, opt ShardOptions) {
	most := opt.Watermark
	if most <= 0 {
		most = Watermark
	}
	most = min(most, max(4096, len(dst.FIDOffset)/16))
	dst.tasks = append(dst.tasks[:0], 0)
	sum := 0
	for f := range p.features {
		n := dst.ids(f, b)
		if sum > 0 && sum+n > most {
			dst.tasks = append(dst.tasks, f)
			sum = 0
		}
		sum += n
	}
	dst.tasks = append(dst.tasks, len(p.features))
}

// ids is how many ids feature f has.
func (s *Shards) ids(f int, b *Batch) int {
	row := int(s.NFLOffset[f] &^ SharedBit)
	return int(s.FeatureOffset[row+b.cols[f].n] - s.FeatureOffset[row])
}

// number gives each id of feature f its shard and its row there, kept in FIDOffset as
// shard<<32 | row until fill knows where the feature's part begins.
func (p *Plan) number(dst *Shards, b *Batch, f int, unique bool, d *dedup) {
	parts := dst.parts[f*p.shards : (f+1)*p.shards]
	clear(parts)
	out := dst.FIDOffset[dst.FeatureOffset[dst.NFLOffset[f]&^SharedBit]:]
	if unique {
		d.start(max(1, dst.ids(f, b)))
	}
	k := 0
	for _, s := range b.spans(f) {
		for _, fid := range b.fids[s.at : s.at+s.n] {
			shard := p.mod.of(fid)
			part := &parts[shard]
			row, isNew := part.count, true
			if unique {
				row, isNew = d.index(fid, &p.seed, row)
			}
			if isNew {
				part.count++
			}
			out[k] = shard<<32 | uint64(row)
			k++
		}
	}
}

// place decides where each part begins, and writes every size and split.
func (p *Plan) place(dst *Shards) error {
	for t := range p.tables {
		for shard := range p.shards {
			var at block
			for _, f := range p.tables[t].features {
				part := &dst.parts[f*p.shards+shard]
				part.row, part.float = at.rows, at.floats
				at.rows += int64(part.count)
				at.floats += int64(part.count) * int64(p.features[f].width)
			}
			limit := int64(math.MaxUint32)
			if dst.Version >= V4 {
				limit = math.MaxInt32
			}
			if dst.Version >= V3 && at.floats > limit {
				return fmt.Errorf("layout: shard %d of table %q gets %d floats, and offsets end at %d: use smaller batches or more shards", shard, p.tables[t].name, at.floats, limit)
			}
			dst.blocks[t*p.shards+shard] = at
		}
	}
	total := int64(0)
	for _, b := range dst.blocks {
		total += b.rows
	}
	dst.flat = grow(dst.flat, int(total))
	if dst.Version == V4 {
		p.placeV4(dst)
	} else {
		p.placeBlocks(dst)
	}
	return nil
}

func (p *Plan) placeBlocks(dst *Shards) {
	n := p.Blocks()
	dst.FIDs = grow(dst.FIDs, n)
	dst.RowSplits = dst.RowSplits[:0]
	if dst.Version >= V2 {
		dst.RowSplits = grow(dst.RowSplits, n)
		dst.splits = grow(dst.splits, (len(p.features)+len(p.tables))*p.shards)
	}
	at, split := int64(0), 0
	for t := range p.tables {
		for shard := range p.shards {
			i := t*p.shards + shard
			b := dst.blocks[i]
			dst.FIDs[i] = dst.flat[at : at+b.rows : at+b.rows]
			if dst.Version >= V2 {
				size := len(p.tables[t].features) + 1
				dst.RowSplits[i] = dst.splits[split : split+size : split+size]
				p.split(dst, t, shard, dst.RowSplits[i])
				split += size
			}
			p.base(dst, t, shard, at)
			at += b.rows
		}
	}
	if dst.Version == V5 {
		dst.EmbSize = grow(dst.EmbSize, n)
		dst.RowSplitsSize = grow(dst.RowSplitsSize, n)
		for i, b := range dst.blocks {
			dst.EmbSize[i] = int32(b.floats)
			dst.RowSplitsSize[i] = int32(len(dst.RowSplits[i]))
		}
		dst.NFLSize = int32(len(dst.NFLOffset))
		dst.FeatureSize = int32(len(dst.FeatureOffset))
		dst.FIDSize = int32(len(dst.FIDOffset))
	}
}

func (p *Plan) placeV4(dst *Shards) {
	n := p.Blocks()
	dst.TableRowLength = grow(dst.TableRowLength, n)
	dst.EmbRowLength = grow(dst.EmbRowLength, n)
	dst.ShardRowLength = grow(dst.ShardRowLength, p.shards)
	dst.splits = grow(dst.splits, (len(p.features)+len(p.tables))*p.shards)
	at, split := int64(0), 0
	for shard := range p.shards {
		begin := at
		for t := range p.tables {
			b := dst.blocks[t*p.shards+shard]
			dst.TableRowLength[shard*len(p.tables)+t] = int32(b.rows)
			dst.EmbRowLength[shard*len(p.tables)+t] = int32(b.floats)
			size := len(p.tables[t].features) + 1
			p.split(dst, t, shard, dst.splits[split:split+size])
			split += size
			p.base(dst, t, shard, at)
			at += b.rows
		}
		dst.ShardRowLength[shard] = int32(at - begin)
	}
	dst.FIDs = append(dst.FIDs[:0], dst.flat)
	dst.RowSplits = append(dst.RowSplits[:0], dst.splits)
}

// split writes where the features of a block begin in its ids.
func (p *Plan) split(dst *Shards, t, shard int, out []int64) {
	out[0] = 0
	for i, f := range p.tables[t].features {
		out[i+1] = out[i] + int64(dst.parts[f*p.shards+shard].count)
	}
}

// base tells the parts of a block that its ids begin at flat[at].
func (p *Plan) base(dst *Shards, t, shard int, at int64) {
	for _, f := range p.tables[t].features {
		part := &dst.parts[f*p.shards+shard]
		part.flat = at + part.row
	}
}

// fill copies the ids of feature f to their blocks and gives their words the version's
// meaning. Features never meet in a part, so tasks write apart from one another.
func (p *Plan) fill(dst *Shards, b *Batch, f int) {
	feature := &p.features[f]
	t := &p.tables[feature.table]
	parts := dst.parts[f*p.shards : (f+1)*p.shards]
	out := dst.FIDOffset[dst.FeatureOffset[dst.NFLOffset[f]&^SharedBit]:]
	flat, width := dst.flat, uint64(feature.width)
	first := uint64(feature.table * p.shards)
	k := 0
	for _, s := range b.spans(f) {
		for _, fid := range b.fids[s.at : s.at+s.n] {
			shard, row := out[k]>>32, out[k]&math.MaxUint32
			part := &parts[shard]
			flat[part.flat+int64(row)] = int64(fid)
			switch dst.Version {
			case V1:
				out[k] = (first+shard)<<32 | (uint64(part.row) + row)
			case V2:
				out[k] = (uint64(t.parts)+shard*uint64(len(t.features))+uint64(feature.nth))<<32 | row
			default:
				out[k] = (first+shard)<<32 | (uint64(part.float) + row*width)
			}
			k++
		}
	}
}
