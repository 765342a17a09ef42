package layout

import "math/bits"

// dedup numbers distinct ids. It is open addressing with linear probing at a load of at
// most a half; entries of earlier uses die by their epoch, so starting afresh is free.
type dedup struct {
	entries []dedupEntry
	mask    uint64
	epoch   uint32
}

type dedupEntry struct {
	fid   uint64
	epoch uint32
	index uint32
}

// start makes d empty, with room for n ids.
func (d *dedup) start(n int) {
	size := max(16, 1<<bits.Len(uint(2*n-1)))
	if len(d.entries) < size {
		d.entries, d.epoch = make([]dedupEntry, size), 0
	}
	if d.epoch++; d.epoch == 0 {
		clear(d.entries)
		d.epoch = 1
	}
	d.mask = uint64(size - 1)
}

// index returns the number that fid got before, or gives it next.
func (d *dedup) index(fid uint64, seed *[2]uint64, next uint32) (index uint32, isNew bool) {
	hi, lo := bits.Mul64(fid^seed[0], seed[1])
	entries, mask := d.entries, d.mask
	for i := (hi ^ lo) & mask; ; i = (i + 1) & mask {
		e := &entries[i]
		if e.epoch != d.epoch {
			*e = dedupEntry{fid, d.epoch, next}
			return next, true
		}
		if e.fid == fid {
			return e.index, false
		}
	}
}
