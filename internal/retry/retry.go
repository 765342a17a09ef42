// Package retry paces attempts that are made again: exponential pauses with jitter, so
// that many clients of one failed server do not come back in step.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Backoff is the pause between attempts. Its methods must not be called concurrently.
type Backoff struct{ pauses *backoff.ExponentialBackOff }

// New returns pauses that double from first on, each drawn from half of it to one and a
// half, and none longer than last.
func New(first, last time.Duration) *Backoff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = min(first, last*2/3), last*2/3 // of the middle of a draw
	b.Multiplier, b.RandomizationFactor = 2, 0.5
	b.Reset()
	return &Backoff{b}
}

// Next is the pause before the next attempt.
func (b *Backoff) Next() time.Duration { return b.pauses.NextBackOff() }

// Reset starts again at the first pause: call it after a success.
func (b *Backoff) Reset() { b.pauses.Reset() }

// Wait sleeps for Next. It returns the error of ctx when that ends first.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Sleep returns after d, or with the error of ctx when that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
