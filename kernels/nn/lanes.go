package nn

import (
	"context"
	"slices"
	"sync"

	"github.com/monolith-go/monolith/kernels/par"
)

// Lanes are the lanes of a process, so that whatever computes in it shares its processors: there are as
// many lanes as runs are expected at once, at most one for each thread, and each has its share of the
// threads. Runs beyond that wait, first come, first served. A lane is held for a run alone, never while
// its holder waits for a network.
//
// A nil Lanes gives each run a lane of its own, without threads.
type Lanes struct {
	threads int

	mu       sync.Mutex // guards all below
	expected int        // runs at once
	width    int        // threads of each lane
	lanes    []*Lane    // of the present cut
	memory   []*Lane    // of all cuts: their arenas are used again
	idle     []*Lane
	waiting  []chan *Lane
	spare    []chan *Lane
}

// NewLanes returns lanes of so many threads in all, 0 for as many as Go uses of the processors there are. They
// have goroutines only while runs are expected.
func NewLanes(threads int) *Lanes {
	if threads <= 0 {
		threads = par.Processors()
	}
	s := &Lanes{threads: min(threads, par.MaxThreads)}
	s.cut()
	return s
}

// Threads is how many there are in all; also how many runs can be of use at once.
func (s *Lanes) Threads() int {
	if s == nil {
		return 1
	}
	return s.threads
}

// Expect says that up to n more runs may want a lane at once, until done is called.
func (s *Lanes) Expect(n int) (done func()) {
	if s == nil {
		return func() {}
	}
	s.expect(n)
	return sync.OnceFunc(func() { s.expect(-n) })
}

func (s *Lanes) expect(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected += n
	s.hand()
}

// Get waits for a lane, which is the caller's until Put. One that is idle it returns whatever ctx says.
func (s *Lanes) Get(ctx context.Context) (*Lane, error) {
	if s == nil {
		return &Lane{}, nil
	}
	s.mu.Lock()
	var wait chan *Lane
	if n := len(s.spare); n > 0 {
		wait, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		wait = make(chan *Lane, 1)
	}
	s.waiting = append(s.waiting, wait)
	s.hand()
	s.mu.Unlock()
	var l *Lane
	select {
	case l = <-wait:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, wait); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.spare = append(s.spare, wait)
		return nil, context.Cause(ctx)
	}
	if l == nil { // it came meanwhile
		l = <-wait
	}
	s.spare = append(s.spare, wait)
	return l, nil
}

// Put gives a lane back.
func (s *Lanes) Put(l *Lane) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, l)
	s.hand()
}

// count is how many lanes there should be, each of how many threads.
func (s *Lanes) count() (lanes, width int) {
	if s.expected <= 0 {
		return s.threads, 1
	}
	lanes = min(s.expected, s.threads)
	return lanes, s.threads / lanes
}

// hand gives lanes to those who wait. Where others are due it first waits for all to be idle.
func (s *Lanes) hand() {
	if n, width := s.count(); n != len(s.lanes) || width != s.width {
		if len(s.idle) < len(s.lanes) {
			return
		}
		s.cut()
	}
	for len(s.waiting) > 0 && len(s.idle) > 0 {
		last := len(s.idle) - 1 // whose memory was in use a moment ago
		s.waiting[0] <- s.idle[last]
		s.waiting, s.idle = slices.Delete(s.waiting, 0, 1), s.idle[:last]
	}
}

// cut makes the lanes that are due. All are idle.
func (s *Lanes) cut() {
	n, width := s.count()
	for _, l := range s.lanes {
		if l.Pool != nil {
			l.Pool.Close()
			l.Pool = nil
		}
	}
	for len(s.memory) < n {
		s.memory = append(s.memory, &Lane{})
	}
	s.lanes, s.width = s.memory[:n], width
	for _, l := range s.lanes {
		if width > 1 {
			l.Pool, _ = par.New(width) // 1 to MaxThreads
		}
	}
	s.idle = append(s.idle[:0], s.lanes...)
}
