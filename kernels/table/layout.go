package table

import (
	"fmt"
	"unsafe"

	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/optim"
)

// Compressor is a format of serving rows. A compress.Aware one also decides what
// training lookups see.
type Compressor = compress.Compressor

// Segment is a part of every row with rules of its own.
type Segment struct {
	Dim         int // weights, 1 to MaxDim; all segments together MaxDim at most
	Optimizer   optim.Optimizer
	Initializer Initializer
	Compressor  Compressor
}

// part is a segment and where it lies in a row.
type part struct {
	Segment
	at, to         int            // weights
	slotAt, slotTo int            // slots
	byteAt, byteTo int            // of the weights as they are stored
	aware          compress.Aware // of a training row, nil for most
}

// layout is what a row looks like: its weights, as float32 or compressed, then the
// optimizers' slots.
type layout struct {
	parts      []part
	dim, slots int
	valueBytes int
	rowBytes   int
	flat       bool // what is stored is what lookups show: float32
	aware      bool // gradients go through compressors
	serving    bool
}

func newLayout(cfg *Config) (layout, error) {
	segments := cfg.Segments
	if segments == nil {
		segments = []Segment{{cfg.Dim, cfg.Optimizer, cfg.Initializer, cfg.Compressor}}
	} else if cfg.Dim != 0 || cfg.Optimizer != nil || cfg.Initializer != nil || cfg.Compressor != nil {
		return layout{}, fmt.Errorf("both segments and the fields of a single one are given: give either")
	}
	if len(segments) == 0 {
		return layout{}, fmt.Errorf("no segments: give one or more")
	}
	if cfg.SkipZero && !cfg.Serving {
		return layout{}, fmt.Errorf("a training table cannot skip zero embeddings: a row may pass through zero")
	}
	l := layout{flat: true, serving: cfg.Serving}
	for i, s := range segments {
		where := ""
		if len(segments) > 1 {
			where = fmt.Sprintf("segment %d: ", i)
		}
		if s.Dim < 1 || s.Dim > MaxDim-l.dim {
			return layout{}, fmt.Errorf("%sdim is %d: give 1 to %d", where, s.Dim, MaxDim-l.dim)
		}
		p := part{Segment: s, at: l.dim, to: l.dim + s.Dim, slotAt: l.slots, slotTo: l.slots, byteAt: l.valueBytes, byteTo: l.valueBytes + 4*s.Dim}
		switch {
		case cfg.Serving && s.Compressor == nil:
			return layout{}, fmt.Errorf("%sno compressor: a serving table needs one, compress.FP32{} is the simplest", where)
		case cfg.Serving:
			n := s.Compressor.Size(s.Dim)
			if n < 1 || n > 4*MaxDim {
				return layout{}, fmt.Errorf("%sthe compressor makes %d bytes of %d weights", where, n, s.Dim)
			}
			p.byteTo = p.byteAt + n
			if _, ok := s.Compressor.(compress.FP32); !ok {
				l.flat = false
			}
		case s.Optimizer == nil:
			return layout{}, fmt.Errorf("%sno optimizer: give one, SGD keeps no slots", where)
		case s.Initializer == nil:
			return layout{}, fmt.Errorf("%sno initializer: give one, Zeros{} is the simplest", where)
		default:
			if err := optim.CheckDim(s.Optimizer, s.Dim); err != nil {
				return layout{}, fmt.Errorf("%s%w", where, err)
			}
			n := s.Optimizer.SlotSize(s.Dim)
			if n < 0 || n > 8*MaxDim {
				return layout{}, fmt.Errorf("%sthe optimizer asks for %d slots: give 0 to %d", where, n, 8*MaxDim)
			}
			p.slotTo = p.slotAt + n
			if a, ok := s.Compressor.(compress.Aware); ok {
				p.aware, l.aware, l.flat = a, true, false
			}
		}
		l.dim, l.slots, l.valueBytes = p.to, p.slotTo, p.byteTo
		l.parts = append(l.parts, p)
	}
	l.rowBytes = l.valueBytes + 4*l.slots
	return l, nil
}

// stride is the distance from row to row: aligned as far as that costs a quarter at
// most, so that rows begin with a cache line or do not cross one.
func (l *layout) stride() uintptr {
	for align := line; align > 4; align /= 2 {
		if padded := (l.rowBytes + align - 1) &^ (align - 1); padded <= l.rowBytes+l.rowBytes/4 {
			return uintptr(padded)
		}
	}
	return uintptr(l.rowBytes+3) &^ 3
}

// show makes out, Dim numbers, of the stored weights of a row.
func (l *layout) show(out []float32, stored []byte, step int64) {
	for i := range l.parts {
		p := &l.parts[i]
		dst, src := out[p.at:p.to], stored[p.byteAt:p.byteTo]
		if l.serving {
			p.Compressor.Decode(dst, src)
			continue
		}
		f := unsafe.Slice((*float32)(unsafe.Pointer(&src[0])), len(dst))
		if p.aware != nil {
			p.aware.Look(dst, f, step)
		} else {
			copy(dst, f)
		}
	}
}

// encode makes a serving row of weights.
func (l *layout) encode(stored []byte, v []float32) {
	for i := range l.parts {
		p := &l.parts[i]
		p.Compressor.Encode(stored[p.byteAt:p.byteTo], v[p.at:p.to])
	}
}
