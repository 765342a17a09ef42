package gemm

import "unsafe"

// panel is what a packing routine is told; the assembly reads it too.
type panel struct {
	src    *float32     // copies: the first row
	ld     uintptr      // bytes from row to row
	dst    *float32     // aligned to a cache line
	stride uintptr      // bytes from step to step: 64 or 128
	k      int          // copies: rows; transpositions: lanes of 32 bits
	mask   uint64       // copies: one bit per lane
	rows   [16]*float32 // transpositions
}

// pack16 packs lanes [at, at+n) and k [k0, k0+k) of m, whose rows become lanes: dst is
// [step][width].
func (w *worker) pack16(be *backend, dst []float32, width int, m Mat, at, n, k0, k int) {
	p := &w.panel
	p.dst, p.stride = &dst[0], uintptr(width)*4
	p.ld = uintptr(m.Stride) * 4
	if m.transposed {
		p.src, p.k = &m.V[k0*m.Stride+at], k
		p.mask = uint64(1)<<n - 1
		be.copy(p)
		p.src, p.dst = nil, nil
		return
	}
	for half := 0; half < n; half += narrow {
		p.dst = &dst[half]
		rows := min(narrow, n-half)
		for i := range rows {
			p.rows[i] = &m.V[(at+half+i)*m.Stride+k0]
		}
		p.k = k
		if be.pairs {
			w.round(be, p, rows, k)
		}
		for i := rows; i < narrow; i++ {
			p.rows[i] = p.rows[rows-1] // lanes nobody stores, but readable
		}
		be.transpose(p)
	}
	p.dst, p.rows = nil, [16]*float32{}
}

// scale copies a block of a, multiplied by alpha.
func (w *worker) scale(a Mat, r0, r1, k0, k int, alpha float32) Mat {
	w.scaled = align(w.scaled, (r1-r0)*k)
	m := Of(w.scaled, r1-r0, k)
	di, dk := a.Stride, 1
	if a.transposed {
		di, dk = dk, di
	}
	for i := range m.Rows {
		for j := range k {
			m.V[i*k+j] = alpha * a.V[(r0+i)*di+(k0+j)*dk]
		}
	}
	return m
}

// round makes p's rows point at bfloat16 pairs.
func (w *worker) round(be *backend, p *panel, rows, k int) {
	pad := be.pad(k) * 2
	if need := narrow * pad; cap(w.words) < need {
		w.words = make([]uint16, need)
	}
	w.words = w.words[:narrow*pad]
	for i := range rows {
		be.round(&w.words[i*pad], p.rows[i], k)
		p.rows[i] = (*float32)(unsafe.Pointer(&w.words[i*pad]))
	}
	p.k = be.steps(k)
}
