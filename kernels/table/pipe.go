package table

import (
	"runtime"
	"sync"
	"unsafe"
)

// backend is a way to look rows up. All give the same bits.
type backend int

const (
	plain backend = iota // under the shard's lock, one id at a time: the meaning of the others
	avx2                 // without locks, many ids in flight
	avx512
)

// Backend names the implementation in use: "plain", "avx2" or "avx512".
func Backend() string { return [...]string{"plain", "avx2", "avx512"}[chosen] }

const (
	// burst is how many ids take a step together. Several bursts are under way at once:
	// those whose bucket lines are on their way from memory for bucketAhead bursts, those whose
	// rows are, and the one whose rows are used.
	burst       = 32
	bucketAhead = 1
	ring        = 8 // bursts, a power of two, more than 2*bucketAhead+1 and rowAhead

	// A stage takes the bursts behind it through the first steps while it updates rows:
	// the one so many bursts behind asks for buckets, the one before that looks at them.
	rowAhead  = 4
	rowBehind = rowAhead - 1
)

// slot is one id on its way, half a cache line.
type slot struct {
	// at is the address of the bucket, then of the row, 0 for a missing one. It is no
	// pointer: before seq is compared it may lead anywhere, where the collector must not
	// follow.
	at   uintptr
	key  uint64  // then the number of the row
	now  *uint32 // the counter, head.seq or head.form
	then uint32  // what it was when the id set out; odd: ask again, under the lock
	k    uint32
}

// view is what the assembly sees of a region.
type view struct {
	chunks unsafe.Pointer
	count  uint64
	shift  uint64
	mask   uint64
	size   uint64
	lines  uint64 // to fetch of each element

	times     unsafe.Pointer // chunks of the rows' times, nil: they are not needed
	timeShift uint64
	timeMask  uint64
}

// pipe is the scratch of one call.
type pipe struct {
	slots   [ring * burst]slot
	used    int                 // so many of them
	more    [ring][burst]uint32 // slots to look at once more, within a burst
	bad     [burst]uint32
	rows    view
	table   []unsafe.Pointer // what rows looks into
	times   []unsafe.Pointer
	counter uintptr // offset in head
	hashed  bool    // ids are hashes already
	stage   stage
	t       *Table
}

// identity lists the slots of a burst.
var identity = func() (l [burst]uint32) {
	for i := range l {
		l[i] = uint32(i)
	}
	return l
}()

var pipes = sync.Pool{New: func() any { return new(pipe) }}

// pipe returns scratch for calls that use the first bytes of rows.
func (t *Table) pipe(bytes int) *pipe {
	p := pipes.Get().(*pipe)
	p.t, p.table = t, t.rows.Chunks()
	p.rows = view{
		chunks: unsafe.Pointer(unsafe.SliceData(p.table)), count: uint64(len(p.table)),
		shift: uint64(t.rows.Shift()), mask: 1<<t.rows.Shift() - 1, size: uint64(t.rows.Size()),
		lines: t.lines(bytes),
	}
	p.counter, p.hashed = unsafe.Offsetof(head{}.seq), false
	return p
}

// writerPipe is pipe for calls that hold the locks when they touch rows: only a change
// of where rows lie makes what it finds out of date.
func (t *Table) writerPipe() *pipe {
	p := t.pipe(t.rowBytes)
	p.counter, p.hashed = unsafe.Offsetof(head{}.form), true
	// Times are there before rows are, so each chunk of rows in view has its times.
	p.times = t.times.Chunks()
	p.rows.times = unsafe.Pointer(unsafe.SliceData(p.times))
	p.rows.timeShift, p.rows.timeMask = uint64(t.times.Shift()), 1<<t.times.Shift()-1
	return p
}

// lines is how many cache lines the first bytes of a row may touch.
func (t *Table) lines(bytes int) uint64 {
	if t.rows.Size()%line != 0 && line%t.rows.Size() != 0 {
		bytes += line - 4
	}
	return uint64(max(bytes+line-1, line) / line)
}

// done gives the scratch back. Until here the table cannot be collected.
func (p *pipe) done() {
	p.t, p.table, p.times, p.rows, p.stage = nil, nil, nil, view{}, stage{}
	for i := range p.slots[:p.used] {
		p.slots[i].now = nil
	}
	pipes.Put(p)
}

// run takes ids through the first two steps and hands each burst to f when its rows are
// about to arrive: the slots of ids[from:from+n].
func (p *pipe) run(ids []int64, f func(slots []slot, from int)) {
	t, bursts := p.t, (len(ids)+burst-1)/burst
	p.used = min(bursts, ring) * burst
	var more [ring]int
	for i := range bursts + 2*bucketAhead + 1 {
		if i < bursts {
			part := ids[i*burst : min((i+1)*burst, len(ids))]
			if p.hashed {
				step1Hashed(&part[0], len(part), &t.heads[0], p.counter, &p.slots[i%ring*burst])
			} else {
				step1(&part[0], len(part), &t.heads[0], p.counter, &p.slots[i%ring*burst])
			}
			for k := len(part); k < burst; k++ {
				p.slots[i%ring*burst+k].at = 0
			}
		}
		if j := i - bucketAhead; j >= 0 && j < bursts {
			more[j%ring] = t.step2(p, j, &identity, min(burst, len(ids)-j*burst))
		}
		if j := i - bucketAhead - 1; j >= 0 && j < bursts {
			if n := more[j%ring]; n > 0 { // there is no third bucket
				t.step2(p, j, &p.more[j%ring], n)
			}
		}
		if j := i - 2*bucketAhead - 1; j >= 0 {
			f(p.burst(j)[:min(burst, len(ids)-j*burst)], j*burst)
		}
	}
}

// runStages is run for an f that calls a stage of p for all slots of a burst, which between its
// own rows does the steps of later bursts and asks for the next one's rows, so that memory
// always has something to do and never too much. Behind the hashes there are zeros up to a whole burst.
func (p *pipe) runStages(hashes []uint64, f func(slots []slot, from int)) {
	t, n := p.t, len(hashes)
	bursts := (n + burst - 1) / burst
	p.used = min(bursts, ring) * burst
	var more [ring]int
	lines := int(p.rows.lines)
	p.rows.lines = 0 // stages ask for rows one by one
	for j := range min(bursts, rowAhead) {
		slots := p.burst(j)
		step1Hashed(&signed(hashes)[j*burst], min(burst, n-j*burst), &t.heads[0], p.counter, &slots[0])
		for k := n - j*burst; k < burst; k++ {
			slots[k].at, slots[k].then = 0, 1
		}
	}
	for j := range min(bursts, rowBehind) {
		more[j] = t.step2(p, j, &identity, min(burst, n-j*burst))
	}
	if more[0] > 0 {
		t.step2(p, 0, &p.more[0], more[0])
	}
	fetchRows(&p.slots[0], burst, lines)
	s := &p.stage
	s.heads, s.rows, s.lines, s.counter = &t.heads[0], &p.rows, lines, p.counter
	for i := range bursts {
		if n := more[(i+1)%ring]; n > 0 && i+1 < bursts {
			t.step2(p, i+1, &p.more[(i+1)%ring], n)
		}
		slots := p.burst(i)
		s.ahead, s.hashes, s.slots2, s.more = 0, 0, 0, 0
		if i+1 < bursts {
			s.ahead = int(address(&p.burst(i + 1)[0])) - int(address(&slots[0]))
		}
		if j := i + rowBehind; j < bursts {
			s.slots2, s.list, s.more = address(&p.burst(j)[0]), address(&identity[0]), address(&p.more[j%ring][0])
		}
		if j := i + rowAhead; j < bursts {
			s.hashes, s.slots1 = address(&hashes[j*burst]), address(&p.burst(j)[0])
		}
		f(slots[:min(burst, n-i*burst)], i*burst)
		if j := i + rowBehind; j < bursts {
			more[j%ring] = int(s.more-address(&p.more[j%ring][0])) / 4
		}
	}
	p.rows.lines = uint64(lines)
	runtime.KeepAlive(hashes)
}

func (p *pipe) burst(j int) []slot { return p.slots[j%ring*burst:][:burst] }

func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

func (t *Table) step2(p *pipe, j int, list *[burst]uint32, n int) int {
	slots, more := &p.slots[j%ring*burst], &p.more[j%ring][0]
	if t.backend == avx512 {
		return step2AVX512(slots, &list[0], n, &p.rows, more)
	}
	return step2AVX2(slots, &list[0], n, &p.rows, more)
}
