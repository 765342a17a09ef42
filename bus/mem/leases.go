package mem

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
)

// lease is held until it is released: a holder in this process cannot die alone.
type lease struct {
	holder string
	lost   chan struct{} // closed when it is held no longer
}

// leases hands out epochs that rise over all leases.
type leases struct {
	bus   *Bus
	mu    sync.Mutex
	epoch uint64
	held  map[string]*lease
}

// try takes the lease, or returns the channel that closes when its holder is gone.
func (l *leases) try(ctx context.Context, name, holder string) (bus.Lease, func(), *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.held[name]; other != nil {
		return bus.Lease{}, nil, other
	}
	mine := &lease{holder: holder, lost: make(chan struct{})}
	l.held[name] = mine
	l.epoch++
	free := sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, name)
		close(mine.lost)
	})
	stop := context.AfterFunc(ctx, free)
	return bus.Lease{Name: name, Epoch: l.epoch, Lost: mine.lost}, func() { stop(); free() }, nil
}

func (l *leases) TryAcquire(ctx context.Context, name, holder string, ttl time.Duration) (bus.Lease, func(), error) {
	if err := usable(ctx, l.bus.closed); err != nil {
		return bus.Lease{}, nil, err
	}
	if err := wire.CheckLease(name, holder, ttl); err != nil {
		return bus.Lease{}, nil, err
	}
	got, release, other := l.try(ctx, name, holder)
	if other != nil {
		return bus.Lease{}, nil, fmt.Errorf("lease %s: %w: %s holds it", name, bus.ErrConflict, other.holder)
	}
	return got, release, nil
}

func (l *leases) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (bus.Lease, func(), error) {
	if err := wire.CheckLease(name, holder, ttl); err != nil {
		return bus.Lease{}, nil, err
	}
	for {
		if err := usable(ctx, l.bus.closed); err != nil {
			return bus.Lease{}, nil, fmt.Errorf("lease %s: %w", name, err)
		}
		got, release, other := l.try(ctx, name, holder)
		if other == nil {
			return got, release, nil
		}
		select {
		case <-ctx.Done():
		case <-l.bus.closed:
		case <-other.lost:
		}
	}
}
