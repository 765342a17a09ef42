//go:build !purego

package gemm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/monolith-go/monolith/kernels/internal/cpu"
)

// modelAMX is amxBF16 with its routine replaced by a model of the instructions, as their
// manual words them. It runs wherever packing in bf16 does.
var modelAMX = &backend{
	name: "amx model", mr: 32, masked: true, rounds: true, pairs: true, amx: true,
	tile: func(t *tile) { amxTile(t, model) }, copy: copyBF16, transpose: transposeAVX512, round: roundBF16, rows: rowsBF16,
}

// registers are the eight tiles. What would raise #GP or #UD panics.
type registers struct {
	rows, cols [8]int
	data       [8][16][16]uint32
}

func (r *registers) ldtilecfg(c *[64]byte) {
	if c[0] != 1 || c[1] != 0 || !bytes.Equal(c[2:16], make([]byte, 14)) || !bytes.Equal(c[32:48], make([]byte, 16)) || !bytes.Equal(c[56:], make([]byte, 8)) {
		panic("reserved bytes of the configuration, or not palette 1")
	}
	*r = registers{}
	for n := range 8 {
		rows, colsb := int(c[48+n]), int(binary.LittleEndian.Uint16(c[16+2*n:]))
		if rows < 1 || rows > 16 || colsb < 4 || colsb > 64 || colsb%4 != 0 {
			panic("a tile of impossible size")
		}
		r.rows[n], r.cols[n] = rows, colsb/4
	}
}

func (r *registers) tileloadd(n int, base *float32, skip, stride uintptr) {
	r.data[n] = [16][16]uint32{}
	for i := range r.rows[n] {
		copy(r.data[n][i][:], unsafe.Slice((*uint32)(unsafe.Add(unsafe.Pointer(base), skip+uintptr(i)*stride)), r.cols[n]))
	}
}

func (r *registers) tilestored(n int, base *float32, skip, stride uintptr) {
	for i := range r.rows[n] {
		copy(unsafe.Slice((*uint32)(unsafe.Add(unsafe.Pointer(base), skip+uintptr(i)*stride)), r.cols[n]), r.data[n][i][:])
	}
}

func (r *registers) tdpbf16ps(c, a, b int) {
	if r.rows[c] != r.rows[a] || r.cols[c] != r.cols[b] || r.cols[a] != r.rows[b] {
		panic("tiles that do not fit each other")
	}
	for m := range r.rows[c] {
		for n := range r.cols[c] {
			var even, odd float32
			for k := range r.cols[a] {
				x, y := r.data[a][m][k], r.data[b][k][n]
				even = fma(bf(x<<16), bf(y<<16), even)
				odd = fma(bf(x&^0xffff), bf(y&^0xffff), odd)
			}
			sum := fma(even, 1, odd)
			r.data[c][m][n] = math.Float32bits(fma(sum, 1, bf(r.data[c][m][n])))
		}
	}
}

func bf(bits uint32) float32 { return math.Float32frombits(bits) }

// fma is x*y+z, rounded once to the nearest; subnormal numbers are zero, going in and
// coming out. x and y have so few bits, or y is 1, that a float64 holds the product.
func fma(x, y, z float32) float32 {
	p, c := float64(flush(x))*float64(flush(y)), float64(flush(z))
	s := p + c
	if math.IsNaN(s) || math.IsInf(s, 0) || s == 0 {
		return float32(s)
	}
	// What the addition lost goes into the last bit, so that the next rounding sees it.
	b := s - p
	if lost := (p - (s - b)) + (c - b); lost != 0 && math.Float64bits(s)&1 == 0 {
		if (lost > 0) == (s > 0) {
			s = math.Float64frombits(math.Float64bits(s) + 1)
		} else {
			s = math.Float64frombits(math.Float64bits(s) - 1)
		}
	}
	if math.Abs(s) < 0x1p-125 { // round as if there were no smallest exponent
		if r := float32(s * 0x1p64); math.Abs(float64(r)) < 0x1p-62 {
			return float32(math.Copysign(0, s))
		}
	}
	return float32(s)
}

func flush(x float32) float32 {
	if math.Abs(float64(x)) < 0x1p-126 {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}

// model does what sweepAMX does.
func model(s *sweep) {
	var r registers
	r.ldtilecfg(&s.config)
	has := [4]bool{true, s.right, s.low, s.low && s.right}
	a, c := uintptr(0), uintptr(0) // a pointer behind the last tile would lead the collector astray
	for range s.tiles {
		at := func(n int, ld uintptr) uintptr { return uintptr(n&1)*64 + uintptr(n>>1)*16*ld }
		for n := range 4 {
			r.data[n] = [16][16]uint32{}
			switch {
			case !has[n]:
			case s.start == startC:
				r.tileloadd(n, s.c, c+at(n, s.ldc), s.ldc)
			case s.start == startBias:
				r.tileloadd(n, s.bias, at(n, 0), 0)
			}
		}
		for i := range s.blocks {
			for h := range uintptr(2) {
				r.tileloadd(tileA+int(h), s.a, a+uintptr(i)*2048+h*1024, 64)
				r.tileloadd(tileB+int(h), s.b, uintptr(i)*2048+h*64, 128)
			}
			for n := range 4 {
				r.tdpbf16ps(n, tileA+n>>1, tileB+n&1)
			}
		}
		for n := range 4 {
			if has[n] {
				r.tilestored(n, s.c, c+at(n, s.ldc), s.ldc)
			}
		}
		a, c = a+s.nextA, c+s.nextC
	}
}

func needsTiles(t *testing.T) {
	t.Helper()
	if cpu.Has() < cpu.AMX {
		t.Skip("SKIPPED: this processor has no AMX; tools/amx-emulator runs these tests on one that is emulated")
	}
	if err := lendTiles(); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
}

// Bit by bit: sums of every kind of number, subnormal, huge and infinite ones among them.
func TestTilesAreTheModel(t *testing.T) {
	needsTiles(t)
	r := rand.New(rand.NewPCG(7, 1))
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	for round := range rounds {
		rows, cols, k := 1+r.IntN(75), 1+r.IntN(80), 1+r.IntN(100)
		number := func() float32 {
			switch x := bf(r.Uint32()); r.IntN(24) {
			case 0:
				return x // anything
			case 1, 2, 3:
				return float32(r.NormFloat64() * 0x1p-64) // products about the smallest number
			case 4:
				return float32(r.NormFloat64() * 0x1p-127)
			}
			return float32(r.NormFloat64())
		}
		fill := func(n int) []float32 {
			v := make([]float32, n)
			for i := range v {
				v[i] = number()
			}
			return v
		}
		a, b, start, bias := Of(fill(rows*k), rows, k), Of(fill(k*cols), k, cols), fill(rows*cols), fill(cols)
		op := Op{Alpha: 1, Beta: 1, BF16: true, Finish: Finish(round % 2)}
		if round%3 == 0 {
			op.Beta, op.Bias = 0, bias
		}
		var got [2][]float32
		for i, be := range []*backend{amxBF16, modelAMX} {
			got[i] = append(got[i], start...)
			p := Workspace{choice: &[2]*backend{avx512, be}}
			if err := p.Mul(Of(got[i], rows, cols), a, b, op); err != nil {
				t.Fatal(err)
			}
		}
		for i, x := range got[0] {
			if y := got[1][i]; math.Float32bits(x) != math.Float32bits(y) && !(x != x && y != y) {
				t.Fatalf("round %d, %d by %d by %d: element %d,%d is %g (%#x), the model says %g (%#x)", round, rows, cols, k, i/cols, i%cols, x, math.Float32bits(x), y, math.Float32bits(y))
			}
		}
	}
}

// Tiles that outlived a call would be saved and restored at every switch of threads, and
// be another goroutine's.
func TestTilesAreReleased(t *testing.T) {
	needsTiles(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := Workspace{choice: &[2]*backend{avx512, amxBF16}}
	c := make([]float32, 40*40)
	if err := p.Mul(Of(c, 40, 40), Of(make([]float32, 40*9), 40, 9), Of(make([]float32, 9*40), 9, 40), Op{Alpha: 1, BF16: true}); err != nil {
		t.Fatal(err)
	}
	if used := xgetbv(1) & tileState; used != 0 {
		t.Errorf("states %#x are in use after a product", used)
	}
}

// The collector reads the pointers that the routine was given when they are cleared: none may have
// left the memory it points into.
func TestTheRoutineMovesNoPointer(t *testing.T) {
	needsTiles(t)
	const tiles = 3
	a, b, c := align(nil, tiles*512), align(nil, 512), make([]float32, tiles*32*32)
	s := &sweep{a: &a[0], b: &b[0], c: &c[0], bias: &b[0], blocks: 1, tiles: tiles, nextA: 2048, nextC: 32 * 32 * 4, ldc: 32 * 4}
	s.configure(32, 32)
	sweepAMX(s)
	if s.a != &a[0] || s.b != &b[0] || s.c != &c[0] || s.bias != &b[0] {
		t.Error("a pointer of the sweep points elsewhere after the call")
	}
}

// A processor that multiplies wrongly is not used, and the reason says what to do.
func TestTheFirstProductIsChecked(t *testing.T) {
	for _, pair := range pairs() {
		if err := proven(pair); err != nil {
			t.Error(err)
		}
		wrong := *pair[1]
		wrong.tile = func(t *tile) {
			pair[1].tile(t)
			floats(t.c, 0, 1)[0] *= 1 + 0x1p-12
		}
		err := proven([2]*backend{pair[0], &wrong})
		if err == nil || !strings.Contains(err.Error(), "MONOLITH_KERNELS=avx512bf16") {
			t.Errorf("%v off by 2^-12: %v", pair, err)
		}
	}
}

// skipAssembler skips a test for want of an assembler that knows AMX; in CI one must be there.
func skipAssembler(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s, and CI must have it: install binutils 2.36 or newer", why)
	}
	t.Skipf("SKIPPED: %s: install binutils 2.36 or newer", why)
}

// The bytes beside each mnemonic are those of GNU as.
func TestEncodings(t *testing.T) {
	as, err := exec.LookPath("as")
	if err != nil {
		skipAssembler(t, "GNU as is missing")
	}
	source, err := os.ReadFile("amx_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	part := regexp.MustCompile(`(BYTE|LONG) \$(0x[0-9a-f]+)`)
	checked := 0
	for _, line := range regexp.MustCompile(`(?m)^#define \w+ +((?:BYTE|LONG) .*?) +// (.*)$`).FindAllStringSubmatch(string(source), -1) {
		var ours []byte
		for _, p := range part.FindAllStringSubmatch(line[1], -1) {
			v, err := strconv.ParseUint(p[2], 0, 32)
			if err != nil {
				t.Fatal(err)
			}
			if ours = append(ours, byte(v)); p[1] == "LONG" {
				ours = append(ours, byte(v>>8), byte(v>>16), byte(v>>24))
			}
		}
		object := filepath.Join(t.TempDir(), "o")
		cmd := exec.Command(as, "--64", "-o", object)
		cmd.Stdin = strings.NewReader(".intel_syntax noprefix\n" + line[2] + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			skipAssembler(t, fmt.Sprintf("as does not know %q: %v: %s", line[2], err, out))
		}
		f, err := elf.Open(object)
		if err != nil {
			t.Fatal(err)
		}
		text, err := f.Section(".text").Data()
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(ours, text) {
			t.Errorf("%s is % x, not % x", line[2], text, ours)
		}
		checked++
	}
	if want := strings.Count(string(source), "\n#define "); checked != want || checked < 24 {
		t.Errorf("checked %d of %d macros", checked, want)
	}
}
