package gemm

import (
	"math"
	"unsafe"
)

// backend is one implementation of the inner loops.
type backend struct {
	name      string
	mr        int  // rows of a tile
	masked    bool // tiles read no more columns of B than they are told, otherwise 32
	rounds    bool // factors become bfloat16
	pairs     bool // a lane is two bfloat16 of neighbouring k
	amx       bool // whole registers of 16 rows: see amx_amd64.go
	tile      func(*tile)
	copy      func(*panel)
	transpose func(*panel)
	round     func(dst *uint16, src *float32, n int)
	rows      func(p *panel) // amx: A as it lies, rounded
}

func (b *backend) String() string { return b.name }

// steps of k: a step is one k, or two.
func (b *backend) steps(k int) int {
	if b.pairs {
		return (k + 1) / 2
	}
	return k
}

// pad is the number of steps that a panel of k has room for: whole transposed blocks, at
// least one.
func (b *backend) pad(k int) int { return max(1, (b.steps(k)+15)/16) * 16 }

// lanes of a panel of A.
func (b *backend) lanes() int {
	if b.amx {
		return wide
	}
	return narrow
}

// block is the number of steps of one pass of a tile, a multiple of 16.
func (b *backend) block() int {
	if b.amx {
		return kBlockAMX
	}
	return kBlock
}

// cut is where the i-th of so many parts of n rows begins. Parts are panels or chunks of
// them; their heights differ by 1 at most, or are whole tiles but for the last where a
// tile costs the same however few of its rows are used.
func (b *backend) cut(n, i, parts int) int {
	if b.amx {
		return min(n, (n+b.mr-1)/b.mr*i/parts*b.mr)
	}
	return n * i / parts
}

// bytes of panels for lanes of k, counted in floats.
func (b *backend) bytes(k, lanes, width int) int {
	return (lanes + width - 1) / width * width * b.pad(k)
}

// What a tile starts from; the assembly knows these numbers and Finish's.
const (
	startZero = iota
	startC
	startBias
)

// tile is what a tile routine is told.
type tile struct {
	a      *float32 // steps of 64 bytes
	b      *float32
	c      *float32
	steps  int
	ldb    uintptr // bytes from step to step of b
	ldc    uintptr // bytes from row to row of c
	rows   int     // 1 to mr
	cols   uint64  // one bit per column
	start  int
	bias   *float32
	finish Finish
	mask   *float32
	ldm    uintptr // bytes from row to row of mask
	width  int     // columns, 1 to 32
	ahead  uintptr // AVX-512: what to ask for meanwhile, from here on
	pace   uintptr // so many bytes more with each step

	edge [14 * wide]float32 // AVX2: a tile that does not fit C
	next uintptr            // AMX: bytes from panel to panel of A; rows may be those of many
	amx  sweep              // AMX
}

// sweep is what the routine for AMX is told: tiles of C below one another, of one size.
type sweep struct {
	config [64]byte // for LDTILECFG
	a      *float32 // blocks of 2048 bytes
	b      *float32
	c      *float32
	bias   *float32
	blocks int     // of 16 steps
	tiles  int     // at least 1
	nextA  uintptr // bytes from tile to tile
	pastA  uintptr // bytes of the tiles done, counted by the routine: no pointer leaves what it points into
	nextC  uintptr
	ldc    uintptr
	start  int
	low    bool // a tile has more than 16 rows
	right  bool // and more than 16 columns
}

// chosen are the backends for fp32 and bf16 that this process uses, and why they are not
// the fastest of this processor. They never change.
var (
	chosen  [2]*backend
	refused error
)

func init() { chosen, refused = fastest() }

// Backends names the implementations in use for fp32 and for bf16: "plain", "avx2",
// "avx512", "avx512bf16", "amxbf16"; a "+round" multiplies rounded factors in fp32.
func Backends() (fp32, bf16 string) { return chosen[0].name, chosen[1].name }

// Refused says why a backend whose instructions this processor has, and which the
// environment allows, is not among [Backends]: the system does not lend the state it
// needs, or its first product was wrong. It is nil where none was refused.
func Refused() error { return refused }

// plain is the meaning of the others.
var (
	plain      = &backend{name: "plain", mr: 8, masked: true, tile: tileGo, copy: copyGo, transpose: transposeGo}
	plainRound = &backend{name: "plain+round", mr: 8, rounds: true, masked: true, tile: tileGo, copy: copyRoundGo, transpose: transposeRoundGo}
)

// floats is the slice of n floats from p on.
func floats(p *float32, skip uintptr, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(p), skip)), n)
}

func tileGo(t *tile) {
	for i := range t.rows {
		c := floats(t.c, uintptr(i)*t.ldc, t.width)
		switch t.start {
		case startZero:
			clear(c)
		case startBias:
			copy(c, floats(t.bias, 0, t.width))
		}
	}
	i := 0
	for ; i+2 <= t.rows; i += 2 {
		c := floats(t.c, uintptr(i)*t.ldc, t.width)
		d := floats(t.c, uintptr(i+1)*t.ldc, t.width)
		for s := range t.steps {
			a := floats(t.a, uintptr(s*64+i*4), 2)
			x, y := a[0], a[1]
			d := d[:len(c)]
			for j, v := range floats(t.b, uintptr(s)*t.ldb, len(c)) {
				c[j] += float32(x * v)
				d[j] += float32(y * v)
			}
		}
	}
	for ; i < t.rows; i++ {
		c := floats(t.c, uintptr(i)*t.ldc, t.width)
		for s := range t.steps {
			x := floats(t.a, uintptr(s*64+i*4), 1)[0]
			for j, v := range floats(t.b, uintptr(s)*t.ldb, len(c)) {
				c[j] += float32(x * v)
			}
		}
	}
	finishGo(t)
}

func finishGo(t *tile) {
	if t.finish == Keep {
		return
	}
	for i := range t.rows {
		c := floats(t.c, uintptr(i)*t.ldc, t.width)
		if t.finish == ReLU {
			for j, v := range c {
				if v < 0 {
					c[j] = 0
				}
			}
			continue
		}
		for j, y := range floats(t.mask, uintptr(i)*t.ldm, t.width) {
			if y <= 0 {
				c[j] = 0
			}
		}
	}
}

func copyGo(p *panel)      { copyWith(p, false) }
func copyRoundGo(p *panel) { copyWith(p, true) }

func copyWith(p *panel, round bool) {
	n := 0
	for m := p.mask; m != 0; m >>= 1 {
		n++
	}
	for k := range p.k {
		dst := floats(p.dst, uintptr(k)*p.stride, int(p.stride/4))
		clear(dst[copy(dst, floats(p.src, uintptr(k)*p.ld, n)):])
		if round {
			for i, x := range dst {
				dst[i] = roundBF16Go(x)
			}
		}
	}
}

func transposeGo(p *panel)      { transposeWith(p, false) }
func transposeRoundGo(p *panel) { transposeWith(p, true) }

func transposeWith(p *panel, round bool) {
	for i, row := range p.rows {
		for k, x := range floats(row, 0, p.k) {
			if round {
				x = roundBF16Go(x)
			}
			floats(p.dst, uintptr(k)*p.stride+uintptr(i)*4, 1)[0] = x
		}
	}
}

// roundBF16Go is the nearest bfloat16, ties to even, as a float32. A NaN stays one.
func roundBF16Go(x float32) float32 {
	b := math.Float32bits(x)
	if x != x {
		return math.Float32frombits((b | 0x00400000) &^ 0xffff)
	}
	return math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
}
