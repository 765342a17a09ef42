package jetstream

import (
	"context"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
)

// pendingSignals and pendingBytes bound what waits for a slow listener; later signals
// are lost.
const (
	pendingSignals = 4096
	pendingBytes   = 16 << 20
)

// signals are core NATS messages.
type signals struct{ b *Bus }

func (s signals) Signal(ctx context.Context, subject string, payload []byte) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("signal %s: %w", subject, conn.Failure(err))
	}
	if err := wire.CheckSubject(subject, false); err != nil {
		return err
	}
	if err := s.b.conn.NATS.Publish(subject, payload); err != nil {
		return fmt.Errorf("signal %s: %w", subject, conn.Failure(err))
	}
	return nil
}

// Listen returns once the server knows of it. stop waits for the handle in progress, so
// handle must not call it.
func (s signals) Listen(ctx context.Context, subject string, handle func(string, []byte)) (func(), error) {
	if err := wire.CheckSubject(subject, true); err != nil {
		return nil, err
	}
	var mu sync.Mutex // held while handle runs
	stopped := false
	sub, err := s.b.conn.NATS.Subscribe(subject, func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			handle(m.Subject, m.Data)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listen to %s: %w", subject, conn.Failure(err))
	}
	if err := sub.SetPendingLimits(pendingSignals, pendingBytes); err != nil {
		return nil, fmt.Errorf("listen to %s: %w", subject, conn.Failure(err))
	}
	stop := sync.OnceFunc(func() {
		mu.Lock()
		stopped = true
		mu.Unlock()
		if err := sub.Unsubscribe(); err != nil {
			s.b.conn.Log.Debug("listener was gone already", "subject", subject, "err", err)
		}
	})
	if err := s.b.conn.Flush(ctx); err != nil {
		stop()
		return nil, fmt.Errorf("listen to %s: %w", subject, err)
	}
	return stop, nil
}
