package par

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// Panic is what a caller panics with whose task panicked in another goroutine.
type Panic struct {
	Value any    // the task's own
	Stack []byte // where it panicked
}

func (p *Panic) Error() string {
	return fmt.Sprintf("par: a task panicked: %v\n%s", p.Value, p.Stack)
}

// Unwrap is the task's value where that is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// errEnded stands for a task that neither returned nor panicked.
var errEnded = errors.New("the task ended its goroutine (runtime.Goexit, or FailNow of a test) instead of returning")

// part does helper i's part of the round seen, counts it and says whether its goroutine
// goes on. One that a task ends is replaced.
func (p *Pool) part(i int, seen int64) (goesOn bool) {
	whole := false
	defer func() {
		if !whole {
			v := recover()
			goesOn = v != nil
			if !goesOn {
				v = errEnded
				p.stopped.Go(func() { p.help(i, seen) })
			}
			p.failed.CompareAndSwap(nil, &Panic{Value: v, Stack: debug.Stack()})
			p.abandon()
		}
		if p.left.Add(-1) == 0 && p.waits.CompareAndSwap(true, false) {
			p.done <- struct{}{}
		}
	}()
	p.work(i + 1)
	whole = true
	return true
}

// abandon lets nobody begin another item of this round.
func (p *Pool) abandon() {
	for w := range p.turns {
		p.turns[w].next.Store(int64(p.job.n))
	}
}
