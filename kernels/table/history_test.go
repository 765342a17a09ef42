package table

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/optim"
)

// Rows are registers: each update of a row adds 1 to all its weights. A read is
// linearizable if its weights are all equal, not less than the updates that had ended
// when it began, and not more than those that had begun when it ended. Meanwhile other
// rows come, go and expire, so that shards grow and numbers of rows are used again.
func TestHistoriesAreLinearizable(t *testing.T) {
	for _, b := range runnable() {
		for _, dim := range []int{16, 20, 70} {
			history(t, b, dim)
		}
	}
}

func history(t *testing.T, b backend, dim int) {
	tab := must(New(Config{Name: "h", Dim: dim, Optimizer: optim.SGD{LearningRate: 1}, Initializer: Zeros{}}))
	tab.backend = b
	h := &registers{t: t, tab: tab, dim: dim}
	var writers, others sync.WaitGroup
	stop := make(chan struct{})
	for w := range uint64(2) {
		writers.Go(func() { h.write(rand.New(rand.NewPCG(w, 1))) })
	}
	loop := func(f func(i int)) {
		others.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					f(i)
				}
			}
		})
	}
	for w := range uint64(2) {
		r := rand.New(rand.NewPCG(w, 2))
		loop(func(int) { h.lookup(r) })
	}
	loop(h.scan)
	loop(h.comeAndGo)
	writers.Wait()
	close(stop)
	others.Wait()
	for id := range int64(hot) {
		if row, ok := tab.row(id); !ok || int64(row.Values[0]) != h.ended[id].Load() {
			t.Errorf("backend %d: row %d ends with %v after %d updates", b, id, row.Values, h.ended[id].Load())
		}
	}
}

// hot is how many rows are registers.
const hot = 96

// registers counts the updates of each register that have begun and ended.
type registers struct {
	t            *testing.T
	tab          *Table
	dim          int
	begun, ended [hot]atomic.Int64
}

// write updates registers 120 times.
func (h *registers) write(r *rand.Rand) {
	for range 120 {
		ids := make([]int64, 1+r.IntN(2*hot))
		grads := make([]float32, len(ids)*h.dim)
		for i := range ids {
			ids[i] = r.Int64N(hot)
			h.begun[ids[i]].Add(1)
		}
		for i := range grads {
			grads[i] = -1
		}
		if err := h.tab.Optimize(ids, grads, 1<<30); err != nil {
			h.t.Error(err)
		}
		for _, id := range ids {
			h.ended[id].Add(1)
		}
	}
}

// check is of a read that began when least updates had ended.
func (h *registers) check(id int64, least int64, v []float32) {
	most := h.begun[id].Load()
	for _, x := range v {
		if x != v[0] {
			h.t.Errorf("backend %d: half an update of row %d: %v", h.tab.backend, id, v)
			return
		}
	}
	if got := int64(v[0]); got < least || got > most {
		h.t.Errorf("backend %d: row %d is %d, %d updates had ended and %d begun", h.tab.backend, id, got, least, most)
	}
}

func (h *registers) lookup(r *rand.Rand) {
	ids, least := make([]int64, 1+r.IntN(200)), make([]int64, 200)
	for i := range ids {
		ids[i] = r.Int64N(hot)
		least[i] = h.ended[ids[i]].Load()
	}
	out := make([]float32, len(ids)*h.dim)
	if _, err := h.tab.Lookup(ids, out, nil); err != nil {
		h.t.Error(err)
	}
	for i, id := range ids {
		h.check(id, least[i], out[i*h.dim:(i+1)*h.dim])
	}
}

// scan reads rows in a cut each fourth time, and else as a page.
func (h *registers) scan(i int) {
	var rows []Row
	if i%4 == 0 {
		rows = h.tab.Snapshot()
	} else {
		rows, _ = h.tab.Rows(NoID, 300)
	}
	for _, row := range rows {
		if row.ID >= 0 && row.ID < hot {
			h.check(row.ID, 0, row.Values)
		}
	}
}

// comeAndGo has other rows come, be removed or expire.
func (h *registers) comeAndGo(i int) {
	ids := make([]int64, 64)
	for j := range ids {
		ids[j] = 1<<48 + int64(i%200*64+j)
	}
	if err := h.tab.Assign(ids, make([]float32, len(ids)*h.dim), uint32(i), 0); err != nil {
		h.t.Error(err)
	}
	h.tab.Expire(1<<30, Expiry{Days: map[int]uint32{1: 1}}, 64)
	if i%3 == 0 {
		h.tab.Remove(ids[:32])
	}
}

// The same for compressed rows, whose halves and bytes are written one by one.
func TestServingRowsAreWhole(t *testing.T) {
	for _, b := range runnable() {
		for _, c := range []Compressor{compress.FP16{}, must(compress.NewFixedR8(128))} {
			tab := must(New(Config{Name: "s", Dim: 48, Compressor: c, Serving: true}))
			tab.backend = b
			ids, done := []int64{1, 2, 3, 4, 5}, make(chan struct{})
			go func() {
				defer close(done)
				v := make([]float32, len(ids)*48)
				for i := range 500 {
					for j := range v {
						v[j] = float32(i % 100)
					}
					if err := tab.Assign(ids, v, 0, 0); err != nil {
						t.Error(err)
					}
				}
			}()
			out := make([]float32, len(ids)*48)
			for running := true; running; {
				select {
				case <-done:
					running = false
				default:
				}
				if _, err := tab.Lookup(ids, out, nil); err != nil {
					t.Fatal(err)
				}
				for i, x := range out {
					if x != out[i/48*48] {
						t.Fatalf("backend %d, %s: half a row", b, c.Name())
					}
				}
			}
		}
	}
}

// One shard grows from nothing, its arrays change places, and in the end it is cleared:
// what has been written is found meanwhile, and nothing else is.
func TestLookupsWhileAShardGrows(t *testing.T) {
	for _, b := range runnable() {
		tab := must(New(Config{Name: "g", Dim: 8, Optimizer: optim.SGD{LearningRate: 1}, Initializer: Zeros{}}))
		tab.backend = b
		r := rand.New(rand.NewPCG(1, 8))
		ids := make([]int64, 20_000)
		for i := range ids {
			ids[i] = crafted(33, 0, 0, r.Uint64())
		}
		var written, clears atomic.Int64
		var readers sync.WaitGroup
		stop := make(chan struct{})
		for w := range 2 {
			readers.Go(func() {
				r := rand.New(rand.NewPCG(uint64(w), 5))
				some, which, out := make([]int64, 300), make([]int, 300), make([]float32, 300*8)
				for {
					select {
					case <-stop:
						return
					default:
					}
					before := clears.Load()
					n := int(written.Load())
					for i := range some {
						which[i] = r.IntN(len(ids))
						some[i] = ids[which[i]]
					}
					if _, err := tab.Lookup(some, out, nil); err != nil {
						t.Error(err)
					}
					cleared := clears.Load() != before
					for i, k := range which {
						got := out[i*8 : (i+1)*8]
						for _, x := range got {
							if x != got[0] || x != 0 && x != float32(k+1) || x == 0 && k < n && !cleared {
								t.Errorf("backend %d: id %d of %d reads %v", b, k, n, got)
								return
							}
						}
					}
				}
			})
		}
		v := make([]float32, 16*8)
		for range 2 {
			for at := 0; at < len(ids); at += 16 {
				for i := range v {
					v[i] = float32(at + i/8 + 1)
				}
				if err := tab.Assign(ids[at:at+16], v, 1, 0); err != nil {
					t.Fatal(err)
				}
				written.Store(int64(at + 16))
			}
			written.Store(0)
			clears.Add(1)
			tab.Clear()
		}
		close(stop)
		readers.Wait()
	}
}
