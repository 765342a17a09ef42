package nn_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/kernels/nn"
)

// take gets n lanes, and says of how many threads each is.
func take(t *testing.T, s *nn.Lanes, n int) (lanes []*nn.Lane, threads []int) {
	t.Helper()
	for range n {
		l, err := s.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lanes, threads = append(lanes, l), append(threads, l.Pool.Threads())
	}
	return lanes, threads
}

// none says that no lane is idle.
func none(t *testing.T, s *nn.Lanes) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l, err := s.Get(ctx)
	if err == nil {
		s.Put(l)
	}
	return err != nil
}

// The threads are shared among as many lanes as runs are expected, one each at least, and no more
// lanes than that are handed out.
func TestThreadsAreSharedAmongLanes(t *testing.T) {
	s := nn.NewLanes(4)
	for _, tc := range []struct{ expected, lanes, threads int }{{0, 4, 1}, {1, 1, 4}, {2, 2, 2}, {3, 3, 1}, {4, 4, 1}, {9, 4, 1}} {
		done := s.Expect(tc.expected)
		lanes, threads := take(t, s, tc.lanes)
		for _, n := range threads {
			if n != tc.threads {
				t.Errorf("%d expected: lanes of %v threads, want %d", tc.expected, threads, tc.threads)
			}
		}
		if !none(t, s) {
			t.Errorf("%d expected: one lane more than %d", tc.expected, tc.lanes)
		}
		more := make(chan *nn.Lane)
		go func() {
			l, _ := s.Get(t.Context())
			more <- l
		}()
		s.Put(lanes[0])
		if l := <-more; l != lanes[0] {
			t.Errorf("%d expected: another lane than that which was given back", tc.expected)
		}
		for _, l := range lanes {
			s.Put(l)
		}
		done()
		done() // once is enough
	}
}

// Lanes are cut anew once all are back; who waits meanwhile gets one of the new ones.
func TestLanesAreCutAnewWhenIdle(t *testing.T) {
	s := nn.NewLanes(4)
	one := s.Expect(1)
	held, _ := take(t, s, 1)
	other := s.Expect(1)
	if !none(t, s) {
		t.Fatal("a lane is handed out before the old one is back")
	}
	got := make(chan int, 2)
	for range 2 {
		go func() {
			l, err := s.Get(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			got <- l.Pool.Threads()
			s.Put(l)
		}()
	}
	s.Put(held[0])
	if a, b := <-got, <-got; a != 2 || b != 2 {
		t.Errorf("lanes of %d and %d threads", a, b)
	}
	one()
	other()
	if lanes, threads := take(t, s, 4); threads[0] != 1 {
		t.Errorf("%d lanes of %v threads when nothing is expected", len(lanes), threads)
	}
}

// Who gives up waiting loses no lane.
func TestWaitingForALaneEnds(t *testing.T) {
	s := nn.NewLanes(1)
	gone := errors.New("gone")
	for range 200 {
		held, _ := take(t, s, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() {
			l, err := s.Get(ctx)
			if err == nil {
				s.Put(l)
			} else if !errors.Is(err, gone) {
				t.Error(err)
			}
		})
		wait.Go(func() { s.Put(held[0]) })
		wait.Go(func() { cancel(gone) })
		wait.Wait()
	}
	if l, err := s.Get(t.Context()); err != nil || l == nil {
		t.Error(err)
	}
}

// However many want one, no more lanes are at work than there are, whatever is expected meanwhile.
func TestLanesAreBounded(t *testing.T) {
	s := nn.NewLanes(3)
	var at, most atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 100 {
				done := s.Expect(1 + i%3)
				l, err := s.Get(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				n := at.Add(int64(l.Pool.Threads()))
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				at.Add(-int64(l.Pool.Threads()))
				s.Put(l)
				done()
			}
		})
	}
	all.Wait()
	if most.Load() > 3 {
		t.Errorf("%d threads at once", most.Load())
	}
}

// Without lanes each run has its own.
func TestNoLanes(t *testing.T) {
	var s *nn.Lanes
	defer s.Expect(2)()
	l, err := s.Get(t.Context())
	if err != nil || l == nil || s.Threads() != 1 {
		t.Fatal(l, err)
	}
	s.Put(l)
}
