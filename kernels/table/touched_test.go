package table

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/kernels/optim"
)

// refuse admits no id that is divisible by 7.
type refuse struct{}

func (refuse) Admit(id int64, _ uint32) bool { return id%7 != 0 }

func tracking(b backend) *Table {
	t := must(New(Config{Name: "t", Dim: 3, Optimizer: optim.Adagrad{LearningRate: .1, InitialAccumulator: .1}, Initializer: Zeros{}, Admitter: refuse{}, Track: true}))
	t.backend = b
	return t
}

// The list is what a map of ids would be: FuzzTouched does anything in any order.
func FuzzTouched(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, uint16(20+50*seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, most uint16) {
		for _, b := range runnable() {
			l := &listed{t: t, b: b, tab: tracking(b), r: rand.New(rand.NewPCG(seed, 1)), rows: map[int64]uint32{}, want: map[int64]bool{}, now: 1}
			for range 60 {
				l.step(int64(most))
			}
		}
	})
}

// listed is a table that tracks what is written, beside maps of what it should hold and list.
type listed struct {
	t    *testing.T
	b    backend
	tab  *Table
	r    *rand.Rand
	rows map[int64]uint32 // id -> time
	want map[int64]bool   // ids of written rows
	now  uint32
}

func (l *listed) draw(most int64) []int64 {
	ids := make([]int64, l.r.IntN(200))
	for i := range ids {
		if ids[i] = l.r.Int64N(most+1) - most/3; l.r.IntN(2) == 0 {
			ids[i] |= 1 << 48
		}
	}
	return ids
}

// wrote are ids that the filter was asked about, unless they had rows.
func (l *listed) wrote(ids []int64) {
	for _, id := range ids {
		if _, ok := l.rows[id]; ok || (refuse{}).Admit(id, 1) {
			l.rows[id], l.want[id] = l.now, true
		}
	}
}

func (l *listed) step(most int64) {
	ids := l.draw(most)
	var err error
	switch l.r.IntN(10) {
	case 0, 1:
		l.now += 40_000
		err = l.tab.Optimize(ids, make([]float32, 3*len(ids)), l.now)
		l.wrote(ids)
	case 2:
		err = l.tab.Assign(ids, make([]float32, 3*len(ids)), l.now, 0)
		l.wrote(ids)
	case 3:
		_, err = l.tab.Reinitialize(ids, l.now)
		l.wrote(ids)
	case 4:
		l.tab.Remove(ids)
		for _, id := range ids {
			delete(l.rows, id)
			delete(l.want, id)
		}
	case 5:
		l.expire()
	case 6:
		var restored []Row
		for _, id := range ids {
			restored = append(restored, Row{ID: id, Values: make([]float32, 3), UnixSec: l.now})
			l.rows[id] = l.now
		}
		err = l.tab.Restore(restored)
	case 7:
		if got, want := l.tab.Unlisted(ids), l.unlisted(ids); !slices.Equal(got, want) {
			l.t.Fatalf("backend %v: %v are not listed, want %v", l.b, got, want)
		}
		l.touch(ids)
	case 8:
		if l.r.IntN(4) == 0 {
			l.tab.TouchAll()
			for id := range l.rows {
				l.want[id] = true
			}
		} else if l.r.IntN(4) == 0 {
			l.tab.Clear()
			clear(l.rows)
			clear(l.want)
		}
	case 9:
		if got, want := l.tab.TakeTouched(), slices.Sorted(maps.Keys(l.want)); !slices.Equal(got, want) {
			l.t.Fatalf("backend %v: %v were written, want %v", l.b, got, want)
		}
		clear(l.want)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	if l.tab.Touched() != len(l.want) {
		l.t.Fatalf("backend %v: %d rows are listed, want %d", l.b, l.tab.Touched(), len(l.want))
	}
}

func (l *listed) expire() {
	e := Expiry{DefaultDays: 1}
	for done := false; !done; {
		_, done = l.tab.Expire(l.now, e, 64)
	}
	maps.DeleteFunc(l.rows, func(id int64, at uint32) bool {
		gone := e.Expired(id, at, l.now)
		if gone {
			delete(l.want, id)
		}
		return gone
	})
}

func (l *listed) unlisted(ids []int64) (clean []int64) {
	for _, id := range ids {
		if _, ok := l.rows[id]; ok && !l.want[id] {
			clean = append(clean, id)
		}
	}
	return clean
}

func (l *listed) touch(ids []int64) {
	var missing []int64
	for _, id := range ids {
		if _, ok := l.rows[id]; ok {
			l.want[id] = true
		} else {
			missing = append(missing, id)
		}
	}
	if got := l.tab.Touch(ids); !slices.Equal(got, missing) {
		l.t.Fatalf("Touch says that %v are missing, want %v", got, missing)
	}
}

// Nothing that several goroutines write at once is missing from the lists taken meanwhile.
func TestTouchedWhileWriting(t *testing.T) {
	tab := must(New(Config{Name: "t", Dim: 1, Optimizer: optim.SGD{}, Initializer: Zeros{}, Track: true}))
	const writers, each = 4, 3000
	var writing sync.WaitGroup
	for w := range int64(writers) {
		writing.Go(func() {
			for i := range int64(each / 30) {
				ids := make([]int64, 30)
				for j := range ids {
					ids[j] = w*each + i*30 + int64(j)
				}
				if err := tab.Optimize(ids, make([]float32, 30), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()
	seen := map[int64]bool{}
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		for _, id := range tab.TakeTouched() {
			if seen[id] {
				t.Fatalf("id %d was written once and is listed twice", id)
			}
			seen[id] = true
		}
	}
	if len(seen) != writers*each {
		t.Errorf("%d ids are listed of %d", len(seen), writers*each)
	}
}

func TestATableWithoutTrackListsNothing(t *testing.T) {
	tab := must(New(Config{Name: "t", Dim: 1, Optimizer: optim.SGD{}, Initializer: Zeros{}}))
	if err := tab.Optimize([]int64{1, 2}, []float32{1, 1}, 1); err != nil {
		t.Fatal(err)
	}
	if n, ids := tab.Touched(), tab.TakeTouched(); n != 0 || len(ids) != 0 {
		t.Errorf("%d rows, ids %v", n, ids)
	}
}

// What tracking adds to an update, and what taking the list costs.
func BenchmarkTouched(b *testing.B) {
	const rows = 13_309
	for _, track := range []bool{false, true} {
		tab := must(New(Config{Name: "t", Dim: 16, Optimizer: optim.Adagrad{LearningRate: .1, InitialAccumulator: .1}, Initializer: Zeros{}, Track: track}))
		r, ids, grads := rand.New(rand.NewPCG(1, 1)), make([]int64, rows), make([]float32, 16*rows)
		for from := int64(0); from < 400_000; from += rows {
			for i := range ids {
				ids[i] = from + int64(i)
			}
			if err := tab.Optimize(ids, grads, 1); err != nil {
				b.Fatal(err)
			}
		}
		next := func() {
			for i := range ids {
				ids[i] = r.Int64N(400_000)
			}
		}
		b.Run(fmt.Sprintf("optimize/track=%v", track), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				next()
				tab.TakeTouched()
				b.StartTimer()
				if err := tab.Optimize(ids, grads, 1); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows*b.N), "ns/row")
		})
		if track {
			b.Run("take", func(b *testing.B) {
				n := 0
				for b.Loop() {
					b.StopTimer()
					next()
					if err := tab.Optimize(ids, grads, 1); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
					n += len(tab.TakeTouched())
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/row")
			})
		}
	}
}
