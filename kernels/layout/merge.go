package layout

import "math"

// merge keeps each id of a block once, where its first feature has it, and has the words of the
// others say so.
func (p *Plan) merge(dst *Shards) {
	d, _ := p.dedups.Get().(*dedup)
	if d == nil {
		d = &dedup{}
	}
	defer p.dedups.Put(d)
	for t := range p.tables {
		if len(p.tables[t].features) < 2 || p.tables[t].width == 0 {
			continue // rows of other widths are other rows
		}
		for shard := range p.shards {
			p.mergeBlock(dst, t, shard, d)
		}
	}
}

func (p *Plan) mergeBlock(dst *Shards, t, shard int, d *dedup) {
	at := t*p.shards + shard
	fids := dst.FIDs[at]
	if len(fids) == 0 {
		return
	}
	d.start(len(fids))
	dst.moved = grow(dst.moved, len(fids))
	dst.floats = grow(dst.floats, len(fids))
	rows, float := uint32(0), uint32(0)
	for _, f := range p.tables[t].features {
		part, width := &dst.parts[f*p.shards+shard], uint32(p.features[f].width)
		for row := part.row; row < part.row+int64(part.count); row++ {
			fid := fids[row]
			to, isNew := d.index(uint64(fid), &p.seed, rows)
			if isNew {
				fids[to], dst.floats[to] = fid, float
				rows, float = rows+1, float+width
			}
			dst.moved[row] = dst.floats[to]
		}
	}
	if int(rows) == len(fids) {
		return
	}
	for _, f := range p.tables[t].features {
		part, width := &dst.parts[f*p.shards+shard], int64(p.features[f].width)
		begin := dst.FeatureOffset[dst.NFLOffset[f]&^SharedBit]
		end := dst.FeatureOffset[len(dst.FeatureOffset)-1]
		if f+1 < len(p.features) {
			end = dst.FeatureOffset[dst.NFLOffset[f+1]&^SharedBit]
		}
		for i, word := range dst.FIDOffset[begin:end] {
			if word>>32 == uint64(at) {
				row := part.row + (int64(word&math.MaxUint32)-part.float)/width
				dst.FIDOffset[int(begin)+i] = word&^math.MaxUint32 | uint64(dst.moved[row])
			}
		}
	}
	dst.FIDs[at] = fids[:rows:rows]
	if dst.Version == V5 {
		dst.EmbSize[at] = int32(float)
	}
}
