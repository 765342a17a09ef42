package mem

import (
	"bytes"
	"context"
	"sync"

	"github.com/monolith-go/monolith/bus/internal/wire"
)

// pending bounds the signals that wait for a slow listener; later ones are lost.
const pending = 1024

type signal struct {
	subject string
	payload []byte
}

type listener struct {
	filter string
	queue  chan signal
}

// signals delivers at most once.
type signals struct {
	bus       *Bus
	mu        sync.Mutex
	listeners map[*listener]struct{}
}

func (s *signals) Signal(ctx context.Context, subject string, payload []byte) error {
	if err := usable(ctx, s.bus.closed); err != nil {
		return err
	}
	if err := wire.CheckSubject(subject, false); err != nil {
		return err
	}
	m := signal{subject, bytes.Clone(payload)}
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		if match(l.filter, subject) {
			select {
			case l.queue <- m:
			default:
			}
		}
	}
	return nil
}

// Listen owns one goroutine until stopped. stop waits for the handle in progress, so
// handle must not call it.
func (s *signals) Listen(ctx context.Context, subject string, handle func(string, []byte)) (func(), error) {
	if err := usable(ctx, s.bus.closed); err != nil {
		return nil, err
	}
	if err := wire.CheckSubject(subject, true); err != nil {
		return nil, err
	}
	l := &listener{filter: subject, queue: make(chan signal, pending)}
	s.mu.Lock()
	s.listeners[l] = struct{}{}
	s.mu.Unlock()

	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case <-quit:
				return
			case <-s.bus.closed:
				return
			case m := <-l.queue:
				handle(m.subject, m.payload)
			}
		}
	}()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		close(quit)
		<-gone
	}), nil
}
