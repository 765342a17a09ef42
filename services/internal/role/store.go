// Package role is what every role is made of: it waits for its views, decides on them and
// appends with the sequence that it has decided on as the expected one, answers commands,
// parks what is not for it, and tells the replica-registry that it is alive.
package role

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/retry"
)

// attempts bounds how often a decision is taken again. Somebody's append wins each
// round, so a loser of all of them has met a writer that does not stop.
const attempts = 50

// Between two of them: the first pause, and the longest.
const firstPause, lastPause = time.Millisecond, 128 * time.Millisecond

// Store appends the facts of one owner.
type Store struct {
	Log    bus.Log
	Source string // the role, in every header
	// Wait returns once every view that decisions read has folded the event at seq.
	Wait func(ctx context.Context, seq uint64) error
}

// Append decides and appends until the decision holds. It returns the drafts stored with
// their sequences, both empty when there was nothing to append. An error of decide ends
// it at once; everything stored is folded by the views before Append returns.
func (s Store) Append(ctx context.Context, decide func() ([]bus.Draft, error)) ([]bus.Draft, []uint64, error) {
	var lasts map[events.Subject]uint64 // after a conflict: what the views have folded for certain
	pauses := retry.New(firstPause, lastPause)
	for range attempts {
		drafts, err := decide()
		if err != nil || len(drafts) == 0 {
			return nil, nil, err
		}
		for i := range drafts {
			d := &drafts[i]
			if d.Header.Source == "" {
				d.Header.Source = s.Source
			}
			if d.Header.ID == "" {
				d.Header.ID = rand.Text()
			}
			// A view may pass over what others put on the subject; the expected sequence must not.
			if last := lasts[d.Subject]; d.Expect != bus.Any && d.Expect < last {
				d.Expect = last
			}
		}
		seqs, err := s.resend(ctx, drafts)
		if err == nil {
			return drafts, seqs, s.Wait(ctx, seqs[len(seqs)-1])
		}
		if !errors.Is(err, bus.ErrConflict) {
			return nil, nil, err
		}
		if err := pauses.Wait(ctx); err != nil {
			return nil, nil, context.Cause(ctx)
		}
		if lasts, err = s.catchUp(ctx, drafts); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("gave up after %d conflicts: %w", attempts, bus.ErrConflict)
}

// resend repeats the identical append while the bus gives no answer: same ids, so
// whatever was stored the first time is not stored again.
func (s Store) resend(ctx context.Context, drafts []bus.Draft) ([]uint64, error) {
	pauses := retry.New(firstPause, lastPause)
	for {
		seqs, err := s.Log.Append(ctx, drafts...)
		if err == nil || !bus.Retryable(err) || ctx.Err() != nil {
			return seqs, err
		}
		if pauses.Wait(ctx) != nil {
			return nil, err
		}
	}
}

func (s Store) catchUp(ctx context.Context, drafts []bus.Draft) (map[events.Subject]uint64, error) {
	lasts := map[events.Subject]uint64{}
	var to uint64
	for _, d := range drafts {
		if _, ok := lasts[d.Subject]; ok || d.Expect == bus.Any {
			continue
		}
		last, err := s.Log.LastOf(ctx, d.Subject)
		if err != nil {
			return nil, fmt.Errorf("find the end of %s: %w", d.Subject, err)
		}
		lasts[d.Subject], to = last, max(to, last)
	}
	return lasts, s.Wait(ctx, to)
}

// Waits joins the Wait of several views.
func Waits(waits ...func(context.Context, uint64) error) func(context.Context, uint64) error {
	return func(ctx context.Context, seq uint64) error {
		for _, wait := range waits {
			if err := wait(ctx, seq); err != nil {
				return err
			}
		}
		return nil
	}
}
