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

// packRows packs n rows of m from at on, and k [k0, k0+k), as AMX wants A: blocks of 16
// steps, in each of them 32 rows of 64 bytes. Rows beyond n are left as they are, steps
// beyond k are zero.
func (w *worker) packRows(be *backend, dst []float32, m Mat, at, n, k0, k int) {
	p := &w.panel
	if !m.transposed {
		p.ld, p.stride, p.k = uintptr(m.Stride)*4, wide*narrow*4, k
		for i := range n {
			p.src, p.dst = &m.V[(at+i)*m.Stride+k0], &dst[i*narrow]
			be.rows(p)
		}
		p.src, p.dst = nil, nil
		return
	}
	blocks := (be.steps(k) + 15) / 16
	w.turn = align(w.turn, blocks*16*narrow)
	for half := 0; half < n; half += narrow {
		w.pack16(be, w.turn, narrow, m, at+half, min(narrow, n-half), k0, k)
		clear(w.turn[be.steps(k)*narrow:])
		p.stride, p.k = narrow*4, narrow
		for b := range blocks {
			p.dst = &dst[(b*wide+half)*narrow]
			for i := range p.rows {
				p.rows[i] = &w.turn[(b*16+i)*narrow]
			}
			be.transpose(p)
		}
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
