package par

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// panicked is what f panics with.
func panicked(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

func works(t *testing.T, p *Pool) {
	t.Helper()
	counts := make([]int, 40)
	p.Run(len(counts), func(i int) { counts[i]++ })
	for i, n := range counts {
		if n != 1 {
			t.Fatalf("afterwards item %d is done %d times", i, n)
		}
	}
}

func TestPanicsReachTheCaller(t *testing.T) {
	p := pool(t, 3)
	boom := errors.New("boom")
	for round := range 200 {
		var running atomic.Int32
		v := panicked(func() {
			p.Each(9, func(worker, i int) {
				running.Add(1)
				defer running.Add(-1)
				if worker == 1+round%2 {
					panic(boom)
				}
			})
		})
		if n := running.Load(); n != 0 {
			t.Fatalf("%d tasks still ran when the caller went on", n)
		}
		if v == nil {
			continue // the helper came too late: others had done its items
		}
		failed, ok := v.(*Panic)
		if !ok || !errors.Is(failed, boom) || !strings.Contains(failed.Error(), "TestPanicsReachTheCaller") {
			t.Fatalf("the caller panicked with %v", v)
		}
		works(t, p)
	}
}

// Every thread is in a task when one of them panics.
func TestAPanicWaitsForTheOthers(t *testing.T) {
	for _, who := range []int{0, 1, 2} {
		p := pool(t, 3)
		var meet sync.WaitGroup
		meet.Add(3)
		var done atomic.Int32
		v := panicked(func() {
			p.Each(30, func(worker, i int) {
				if i%10 == 0 { // each thread's first
					meet.Done()
					meet.Wait()
					if worker == who {
						panic("boom")
					}
					until(func() bool {
						for w := range p.turns {
							if p.turns[w].next.Load() < 30 {
								return false
							}
						}
						return true
					})
				}
				done.Add(1)
			})
		})
		if done.Load() != 2 {
			t.Errorf("%d tasks were done, not the 2 that had begun", done.Load())
		}
		if who == 0 && v != "boom" {
			t.Errorf("the caller's own panic became %v", v)
		}
		if failed, ok := v.(*Panic); who != 0 && (!ok || failed.Value != "boom" || failed.Unwrap() != nil) {
			t.Errorf("helper %d's panic became %v", who, v)
		}
		after := done.Load()
		works(t, p)
		if done.Load() != after {
			t.Errorf("tasks of the call that panicked went on")
		}
	}
}

// A task that ends its goroutine ends the call, not the pool.
func TestATaskThatEndsItsGoroutine(t *testing.T) {
	p := pool(t, 2)
	for _, who := range []int{1, 0} {
		var call sync.WaitGroup
		var v any
		back := false
		call.Go(func() {
			v = panicked(func() {
				var meet sync.WaitGroup
				meet.Add(2)
				p.Each(2, func(worker, _ int) {
					meet.Done()
					meet.Wait()
					if worker == who {
						runtime.Goexit()
					}
				})
			})
			back = true
		})
		call.Wait()
		if failed, ok := v.(*Panic); who == 1 && (!ok || !errors.Is(failed, errEnded)) {
			t.Errorf("the caller panicked with %v", v)
		}
		if who == 0 && back {
			t.Error("the caller came back from a task that ended its goroutine")
		}
		works(t, p)
	}
}
