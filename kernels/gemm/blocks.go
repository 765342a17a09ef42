package gemm

import "unsafe"

// The blocking. A tile is at most 14 rows, with AMX 32 (the backend's mr), by 32 columns.
//
//   - B is packed in panels of 32 columns, all threads together.
//   - Rows are cut into chunks. A thread takes one, packs its rows of A in panels, and
//     computes it: for each panel of B, for each kBlock of it (at most 128 KiB, which
//     streams from L2), for each panel of A.
//   - More than kMax of k, or more columns than packMax holds, go in rounds.
const (
	narrow = 16   // lanes of a panel of A
	wide   = 32   // lanes of a panel of B
	kBlock = 1024 // steps of one pass of a tile
	// With AMX a step of A costs as much as one of B, and a tile eats both too fast for L2:
	// 32 KiB of B stay in L1.
	kBlockAMX = 256
	kMax      = 4096    // k of one round
	packMax   = 2 << 20 // floats of packed B in one round: 8 MiB
	chunkMax  = 1 << 17 // floats of packed A in one chunk: half of L2
	alone     = 1 << 20 // multiply-adds below which waking a thread costs more than it does
)

// source is B: a matrix, or already packed.
type source struct {
	mat    Mat
	packed *Packed
}

// job is what the threads work on.
type job struct {
	be      *backend
	c, a    Mat
	b       source
	op      Op
	packed  []float32 // panels of B, kpad steps of 32 lanes each
	inPlace bool      // B is read where it lies
	kpad    int       // steps of a panel's storage
	step0   int       // the first step of this round in packed
	k       int       // of this round
	k0      int       // where this round begins
	cols    int       // of this round
	col0    int       // where this round begins
	chunks  int       // of rows
	splits  int       // of columns
}

// worker is the memory of one thread.
type worker struct {
	pack   []float32
	scaled []float32
	words  []uint16
	turn   []float32 // AMX: a transposed A before it is turned round
	panel  panel
	tile   tile
	int8   worker8
}

func (s *Workspace) backend(bf16 bool) *backend {
	choice := s.choice
	if choice == nil {
		choice = &chosen
	}
	if bf16 {
		return choice[1]
	}
	return choice[0]
}

func (s *Workspace) run(c, a Mat, b source, op Op) error {
	if err := c.check("C"); err != nil {
		return err
	}
	if err := a.check("A"); err != nil {
		return err
	}
	if err := op.check(c); err != nil {
		return err
	}
	if c.Rows == 0 || c.Cols == 0 {
		return nil
	}
	if op.Beta != 0 && op.Beta != 1 {
		for i := range c.Rows {
			row := c.V[i*c.Stride:][:c.Cols]
			for j := range row {
				row[j] *= op.Beta
			}
		}
	}
	s.ready()
	be := s.backend(op.BF16)
	k := a.Cols
	j := &s.job
	*j = job{be: be, c: c, a: a, b: b, op: op}
	j.inPlace = b.packed == nil && !b.mat.transposed && !be.rounds && (be.masked || c.Cols%wide == 0) && c.Rows <= be.mr
	panels := (c.Rows + be.mr - 1) / be.mr
	ncols := c.Cols
	if b.packed == nil && !j.inPlace {
		ncols = max(wide, packMax/be.pad(min(k, kMax))/wide*wide)
	}
	for j.col0 = 0; j.col0 < c.Cols; j.col0 += j.cols {
		j.cols = min(ncols, c.Cols-j.col0)
		for j.k0 = 0; j.k0 == 0 || j.k0 < k; j.k0 += j.k {
			j.k = min(k-j.k0, kMax)
			switch {
			case b.packed != nil:
				j.packed, j.kpad, j.step0 = b.packed.data, be.pad(b.packed.all), be.steps(b.packed.first+j.k0)
			case !j.inPlace:
				j.kpad = be.pad(j.k)
				s.pack = align(s.pack, be.bytes(j.k, j.cols, wide))
				j.packed = s.pack
				s.Pool.Each((j.cols+wide-1)/wide, s.packPanel)
			}
			perChunk := max(1, chunkMax/be.lanes()/be.pad(j.k))
			j.chunks = (panels + perChunk - 1) / perChunk
			// Twice as many chunks as threads let one that lost its core be helped out.
			threads := s.Pool.Threads()
			if max(c.Rows, 8)*j.cols*j.k < alone { // B is read once, however few the rows
				threads = 1
			}
			even := 2 * threads
			if threads == 1 {
				even = 1
			}
			j.chunks = min(panels, (j.chunks+even-1)/even*even)
			j.splits = 1
			if j.chunks < threads {
				j.splits = min(threads/j.chunks, (j.cols+wide-1)/wide)
			}
			s.Pool.Each(j.chunks*j.splits, s.mulChunk)
			if k == 0 {
				break
			}
		}
	}
	*j = job{}
	return nil
}

// packPhase packs the i-th panel of B.
func (s *Workspace) packPhase(worker, i int) {
	j, w := &s.job, &s.workers[worker]
	if j.k == 0 {
		return
	}
	col := i * wide
	dst := j.packed[i*j.kpad*wide : (i+1)*j.kpad*wide]
	w.pack16(j.be, dst, wide, j.b.mat.T(), j.col0+col, min(wide, j.cols-col), j.k0, j.k)
	if j.be.amx {
		clear(dst[j.be.steps(j.k)*wide:])
	}
}

// packChunk packs rows r0 to r1 of A, times alpha, into panels of size floats.
func (w *worker) packChunk(j *job, r0, r1, panels, size int) {
	be := j.be
	w.pack = align(w.pack, panels*size)
	a, row0, k0 := j.a, r0, j.k0
	if j.op.Alpha != 1 {
		a, row0, k0 = w.scale(j.a, r0, r1, j.k0, j.k, j.op.Alpha), 0, 0
	}
	edge := func(n int) int { return be.cut(r1-r0, n, panels) }
	for n := range panels {
		dst, row, rows := w.pack[n*size:(n+1)*size], row0+edge(n), edge(n+1)-edge(n)
		switch {
		case j.k == 0:
		case be.amx:
			w.packRows(be, dst, a, row, rows, k0, j.k)
		default:
			w.pack16(be, dst, narrow, a, row, rows, k0, j.k)
		}
	}
}

// chunkPhase computes some rows of C, and some columns.
func (s *Workspace) chunkPhase(worker, i int) {
	j, w := &s.job, &s.workers[worker]
	be := j.be
	chunk, split := i%j.chunks, i/j.chunks
	r0, r1 := be.cut(j.c.Rows, chunk, j.chunks), be.cut(j.c.Rows, chunk+1, j.chunks)
	panels := (r1 - r0 + be.mr - 1) / be.mr
	kpad := be.pad(j.k)
	size := kpad * be.lanes()
	w.packChunk(j, r0, r1, panels, size)
	edge := func(n int) int { return be.cut(r1-r0, n, panels) }
	down := 1 // panels of A that a call of the tile routine takes
	if be.amx {
		down = panels
	}

	t := &w.tile
	t.ldc = uintptr(j.c.Stride) * 4
	t.ldm = uintptr(j.op.Mask.Stride) * 4
	t.ldb = wide * 4
	t.next = uintptr(size) * 4
	steps := be.steps(j.k)
	last := j.k0+j.k == j.a.Cols
	bPanels := (j.cols + wide - 1) / wide
	for n := bPanels * split / j.splits; n < bPanels*(split+1)/j.splits; n++ {
		col := j.col0 + n*wide
		t.width = min(wide, j.c.Cols-col)
		t.cols = uint64(1)<<t.width - 1
		for s := 0; s == 0 || s < steps; s += be.block() {
			t.steps = min(be.block(), steps-s)
			t.start = startC
			if s == 0 && j.k0 == 0 {
				switch {
				case j.op.Bias != nil:
					t.start, t.bias = startBias, &j.op.Bias[col]
				case j.op.Beta == 0:
					t.start = startZero
				}
			}
			t.finish = Keep
			if last && s+t.steps == steps {
				t.finish = j.op.Finish
			}
			switch {
			case t.steps == 0:
			case j.inPlace:
				t.ldb = uintptr(j.b.mat.Stride) * 4
				t.b = &j.b.mat.V[(j.k0+s)*j.b.mat.Stride+col]
			default:
				t.b = &j.packed[(n*j.kpad+j.step0+s)*wide]
			}
			for m := 0; m < panels; m += down {
				row := r0 + edge(m)
				t.rows = edge(m+down) - edge(m)
				if t.steps > 0 {
					t.a = &w.pack[m*size+s*be.lanes()]
				}
				t.c = &j.c.V[row*j.c.Stride+col]
				if t.finish == Mask {
					t.mask = &j.op.Mask.V[row*j.op.Mask.Stride+col]
				}
				if t.ahead, t.pace = uintptr(unsafe.Pointer(t.b)), 0; !j.inPlace {
					// Each panel of A asks for its share of the next panel of B.
					t.pace = uintptr(wide * 4 / panels)
					t.ahead += uintptr(t.steps * wide * 4 * (panels + m) / panels)
				}
				be.tile(t)
			}
		}
	}
	t.a, t.b, t.c, t.bias, t.mask = nil, nil, nil, nil, nil
}

// align returns n floats that begin on a cache line, in old's memory if it suffices.
func align(old []float32, n int) []float32 {
	if cap(old) >= n {
		return old[:n]
	}
	s := make([]float32, n+15)
	skip := int(-uintptr(unsafe.Pointer(&s[0]))%64) / 4
	return s[skip : skip+n : len(s)]
}
