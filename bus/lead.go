package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/retry"
)

var (
	// ErrFenced says that somebody else has led since. What was being decided is not stored.
	ErrFenced = errors.New("another one leads")
	// ErrLeaseLost is the cause of the end of a term whose lease was lost.
	ErrLeaseLost = errors.New("the lease was lost")
	// ErrResigned ends Lead when its term returns it: there is nothing left to lead.
	ErrResigned = errors.New("resigned")
)

const (
	// Between two terms, or two attempts to get the lease: the first pause, and the longest.
	firstPause, lastPause = 300 * time.Millisecond, 5 * time.Second
	// steady is how long a term lasts after which earlier failures count no more.
	steady = time.Minute
)

// Leadership is work that one process at a time does, whoever holds its lease.
type Leadership struct {
	Leases Leases
	Lease  string // its name; namespaces share the leases, so it begins with the namespace
	Holder string // tells candidates apart
	TTL    time.Duration

	Log     *slog.Logger
	Health  *health.State
	Problem string // under which failures in a row show in Health

	// LongestPause bounds the time between two attempts. Default 5s.
	LongestPause time.Duration
	// Standby, if any, is called each time that another one is found to lead.
	Standby func()
}

// Term is the time for which this process holds the lease.
type Term struct {
	Epoch   uint64 // fences: it rises with every holder
	leading func()
}

// Leading says that the term is under way, so that the failures before it count no more.
func (t Term) Leading() { t.leading() }

// Lead waits for the lease and calls term while it is held, again and again until ctx ends
// or term returns ErrResigned; both are nil. The term's context ends with the lease, with
// the cause ErrLeaseLost. The lease alone does not fence: a process that was paused learns
// too late that it is over, so what a term writes must be guarded by Epoch or by a fact
// that a successor's replaces.
func Lead(ctx context.Context, l Leadership, term func(context.Context, Term) error) error {
	attempts, pauses := l.Health.Attempts(l.Problem), retry.New(firstPause, cmp.Or(l.LongestPause, lastPause))
	well := func() {
		attempts.Succeeded()
		pauses.Reset()
	}
	defer attempts.Succeeded() // nobody tries any more
	for ctx.Err() == nil {
		lease, release, err := l.Leases.TryAcquire(ctx, l.Lease, l.Holder, l.TTL)
		if errors.Is(err, ErrConflict) {
			if l.Standby != nil {
				l.Standby()
			}
			well()
			lease, release, err = l.Leases.Acquire(ctx, l.Lease, l.Holder, l.TTL)
		}
		if err == nil {
			began := time.Now()
			err = lease.hold(ctx, func(ctx context.Context) error { return term(ctx, Term{Epoch: lease.Epoch, leading: well}) })
			release()
			if time.Since(began) > steady {
				well()
			}
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, ErrResigned):
			return nil
		case errors.Is(err, ErrFenced):
			l.Log.Warn("fenced: what was being decided is not stored", "lease", l.Lease, "epoch", lease.Epoch, "err", err)
		case err != nil:
			l.Log.Warn("not leading; trying again", "lease", l.Lease, "err", err)
			attempts.Failed(err)
		}
		if pauses.Wait(ctx) != nil {
			return nil
		}
	}
	return nil
}

// hold runs work with a context that ends with the lease.
func (l Lease) hold(parent context.Context, work func(context.Context) error) error {
	ctx, cancel := l.Context(parent)
	defer cancel()
	err := work(ctx)
	if context.Cause(ctx) == ErrLeaseLost {
		return fmt.Errorf("%s: %w", l.Name, ErrLeaseLost)
	}
	return err
}

// Context ends when parent does, with the lease (its cause is ErrLeaseLost then), or by
// cancel, which must be called.
func (l Lease) Context(parent context.Context) (ctx context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(parent)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-l.Lost:
			end(ErrLeaseLost)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		end(nil)
		<-watched
	}
}
