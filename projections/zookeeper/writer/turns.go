package writer

import (
	"context"
	"sync"
)

// turns lets those who ask for the same key go one after another.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

type turn struct {
	free  chan struct{} // holds one while nobody has it
	users int           // who has it or waits
}

// take waits until it is the caller's turn, which lasts until end is called.
func (x *turns) take(ctx context.Context, key string) (end func(), err error) {
	x.mu.Lock()
	t := x.of[key]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		x.of[key] = t
	}
	t.users++
	x.mu.Unlock()
	leave := func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(x.of, key)
		}
	}
	select {
	case <-t.free:
		return func() { t.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
