package table

import (
	"fmt"
	"unsafe"
)

// Lookup copies the weights of ids[i] to out[i*Dim:], zeros for a missing row, which
// is not inserted. out is len(ids)*Dim long. tags, unless nil, is len(ids) long and
// receives the rows' tags, 0 for a missing one. found counts the rows that exist, once
// per occurrence in ids. Each row is read at once; different rows may be read across
// somebody's call. Where a segment's compressor is one that training is aware of, or
// the table is a serving one, out holds what the compressor makes of the weights.
func (t *Table) Lookup(ids []int64, out []float32, tags []uint64) (found int, err error) {
	if len(out) != len(ids)*t.dim {
		return 0, fmt.Errorf("table %s: lookup of %d ids needs room for %d floats, not %d: give len(ids)*dim", t.cfg.Name, len(ids), len(ids)*t.dim, len(out))
	}
	if tags != nil && len(tags) != len(ids) {
		return 0, fmt.Errorf("table %s: lookup of %d ids got room for %d tags: give one per id, or nil", t.cfg.Name, len(ids), len(tags))
	}
	if len(ids) == 0 {
		return 0, nil
	}
	if t.flat {
		return t.fetch(ids, bytesOf(out), t.dim*4, tags), nil
	}
	// What is stored is not what is shown: fetch some, decode them.
	buf := t.buffer(min(len(ids), 4*burst) * t.valueBytes)
	defer t.buffers.Put(buf)
	step := t.step.Load()
	for len(ids) > 0 {
		n := min(len(ids), 4*burst)
		raw := (*buf)[:n*t.valueBytes]
		var some []uint64
		if tags != nil {
			some, tags = tags[:n], tags[n:]
		}
		found += t.fetch(ids[:n], raw, t.valueBytes, some)
		for i := range n {
			t.show(out[i*t.dim:(i+1)*t.dim], raw[i*t.valueBytes:(i+1)*t.valueBytes], step)
		}
		ids, out = ids[n:], out[n*t.dim:]
	}
	return found, nil
}

// fetch copies the first size bytes of each row to out, zeros for a missing one.
func (t *Table) fetch(ids []int64, out []byte, size int, tags []uint64) (found int) {
	if len(ids) == 0 {
		return 0
	}
	if t.backend == plain {
		for i, id := range ids {
			if t.fetchOne(id, out[i*size:(i+1)*size], at(tags, i)) {
				found++
			}
		}
		return found
	}
	p := t.pipe(size)
	defer p.done()
	p.run(ids, func(slots []slot, from int) {
		dst := out[from*size : (from+len(slots))*size]
		if tags != nil {
			// The tag belongs to the row as it is now: read it between the two looks
			// at seq, which the copy below ends.
			t.readTags(slots, tags[from:])
		}
		var n uint64
		if t.backend == avx512 {
			n = step3AVX512(&slots[0], len(slots), unsafe.Pointer(&dst[0]), size, &p.bad[0])
		} else {
			n = step3AVX2(&slots[0], len(slots), unsafe.Pointer(&dst[0]), size, &p.bad[0])
		}
		found += int(n >> 32)
		for _, i := range p.bad[:uint32(n)] {
			k := from + int(i)
			if t.fetchOne(ids[k], out[k*size:(k+1)*size], at(tags, k)) {
				found++
			}
		}
	})
	return found
}

func at(tags []uint64, i int) *uint64 {
	if tags == nil {
		return nil
	}
	return &tags[i]
}

// fetchOne is the plain way: under the lock.
func (t *Table) fetchOne(id int64, dst []byte, tag *uint64) bool {
	hash := hashOf(id)
	s := t.shardOf(hash)
	s.mu.RLock()
	defer s.mu.RUnlock()
	row, ok := s.find(hash)
	if !ok {
		clear(dst)
		if tag != nil {
			*tag = 0
		}
		return false
	}
	copy(dst, unsafe.Slice((*byte)(t.rows.At(row)), len(dst)))
	if tag != nil {
		*tag = t.tag(row)
	}
	return true
}

func bytesOf(f []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), len(f)*4)
}
