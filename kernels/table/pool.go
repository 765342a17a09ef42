package table

import (
	"fmt"
	"unsafe"

	"github.com/monolith-go/monolith/kernels/compress"
)

// Pooling is what becomes of the rows of a bag.
type Pooling int

// Sum adds the rows of a bag up in the order of its ids, Mean divides that by the number
// of ids. A missing row counts as zeros, and as one.
const (
	Sum Pooling = iota
	Mean
)

// kind is how stored weights become float32 in assembly.
type kind int

const (
	kindNone kind = iota // only by the compressor itself
	kindFP32
	kindFP16
	kindInt8
)

// kind finds out what all of a row's weights are, and what one int8 is worth.
func (l *layout) kind() (kind, float32) {
	if l.flat {
		return kindFP32, 1
	}
	if len(l.parts) != 1 || !l.serving {
		return kindNone, 0
	}
	switch c := l.parts[0].Compressor; c.(type) {
	case compress.FP16:
		return kindFP16, 1
	case compress.FixedR8, compress.OneBit:
		var one [1]float32
		c.Decode(one[:], []byte{1})
		return kindInt8, one[0]
	}
	return kindNone, 0
}

// Pool looks up bags of ids and pools each: bag i is ids[offsets[i]:offsets[i+1]], and
// out[i*Dim:] receives Dim numbers for it, zeros for an empty one. offsets has one more
// element than there are bags, ascends from 0 and ends with len(ids). Rows are read as
// Lookup reads them, straight from where they lie.
func (t *Table) Pool(ids []int64, offsets []int32, mode Pooling, out []float32) error {
	switch {
	case mode != Sum && mode != Mean:
		return fmt.Errorf("table %s: pooling %d: give Sum or Mean", t.cfg.Name, mode)
	case len(offsets) == 0 || offsets[0] != 0 || int(offsets[len(offsets)-1]) != len(ids):
		return fmt.Errorf("table %s: pooling of %d ids: offsets must begin with 0 and end with the number of ids", t.cfg.Name, len(ids))
	case len(out) != (len(offsets)-1)*t.dim:
		return fmt.Errorf("table %s: pooling into %d bags needs room for %d floats, not %d", t.cfg.Name, len(offsets)-1, (len(offsets)-1)*t.dim, len(out))
	}
	for i := range len(offsets) - 1 {
		if offsets[i] > offsets[i+1] {
			return fmt.Errorf("table %s: pooling: bag %d ends at %d, before it begins at %d: offsets must ascend", t.cfg.Name, i, offsets[i+1], offsets[i])
		}
	}
	if len(out) == 0 {
		return nil
	}
	clear(out)
	if k, worth := t.kind(); t.backend == avx512 && k != kindNone && len(ids) > 0 {
		t.poolFast(ids, offsets, out, k, worth)
	} else {
		t.poolBag(ids, offsets, out)
	}
	if mode == Mean {
		for i := range len(offsets) - 1 {
			if n := offsets[i+1] - offsets[i]; n > 0 {
				for j := range out[i*t.dim : (i+1)*t.dim] {
					out[i*t.dim+j] /= float32(n)
				}
			}
		}
	}
	return nil
}

// poolSome is how many lines are added up, about, between two looks ahead.
const poolSome = 32

// poolFast adds rows up in registers. A bag that met a writer is done again.
func (t *Table) poolFast(ids []int64, offsets []int32, out []float32, k kind, worth float32) {
	p := t.pipe(t.valueBytes)
	defer p.done()
	p.hashes = fit(p.hashes, len(ids)+burst)
	hashAVX512(&ids[0], len(ids), &p.hashes[0])
	clear(p.hashes[len(ids):]) // see runStages
	bag, again, some := 0, []int(nil), max(poolSome/int(p.rows.lines), 1)
	p.runStages(p.hashes[:len(ids)], func(slots []slot, from int) {
		lines := p.stage.lines
		if p.stage.ahead == 0 {
			lines = 0
		}
		for len(slots) > 0 {
			for int(offsets[bag+1]) <= from {
				bag++
			}
			n := min(len(slots), int(offsets[bag+1])-from, some)
			lookAheadAVX512(&p.stage, n)
			if !poolRowsAVX512(&slots[0], n, &out[bag*t.dim], t.dim, int(k), worth, p.stage.ahead, lines) &&
				(len(again) == 0 || again[len(again)-1] != bag) {
				again = append(again, bag)
			}
			slots, from = slots[n:], from+n
		}
	})
	for _, bag := range again {
		dst, some := out[bag*t.dim:(bag+1)*t.dim], ids[offsets[bag]:offsets[bag+1]]
		clear(dst)
		t.poolBag(some, []int32{0, int32(len(some))}, dst)
	}
}

// poolBag fetches rows and adds what their compressors make of them: the meaning of
// poolFast.
func (t *Table) poolBag(ids []int64, offsets []int32, out []float32) {
	buf := t.buffer(4 * burst * t.valueBytes)
	defer t.buffers.Put(buf)
	shown := make([]float32, t.dim)
	step := t.step.Load()
	bag := 0
	for at := 0; at < len(ids); at += 4 * burst {
		some := ids[at:min(at+4*burst, len(ids))]
		raw := (*buf)[:len(some)*t.valueBytes]
		t.fetch(some, raw, t.valueBytes, nil)
		for i := range some {
			for int(offsets[bag+1]) <= at+i {
				bag++
			}
			dst, row := out[bag*t.dim:(bag+1)*t.dim], raw[i*t.valueBytes:(i+1)*t.valueBytes]
			if t.serving {
				for j := range t.parts {
					p := &t.parts[j]
					p.Compressor.Add(dst[p.at:p.to], row[p.byteAt:p.byteTo])
				}
				continue
			}
			v := shown
			if t.flat {
				v = unsafe.Slice((*float32)(unsafe.Pointer(&row[0])), t.dim)
			} else {
				t.show(v, row, step)
			}
			for j, x := range v {
				dst[j] += x
			}
		}
	}
}
