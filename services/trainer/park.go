package trainer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/services/trainer/step"
)

// How soon, and how seldom, a letter that cannot be parked is tried again.
const (
	parkAgain   = 100 * time.Millisecond
	longestPark = time.Second
)

// park puts a record that cannot be learnt into the dead letters before its offset
// counts as learnt.
func (l *learner) park(ctx context.Context, r step.Rejected) error {
	stream, words := l.reader.Place(r.Record)
	p := bus.Parked{
		Reason: r.Reason, By: author, Stream: stream,
		StreamSeq: uint64(r.Record.Offset), Subject: r.Record.Topic, Data: r.Record.Value,
	}
	for _, k := range slices.Sorted(maps.Keys(words)) {
		if p.Header == nil {
			p.Header = map[string][]string{}
		}
		p.Header[k] = []string{words[k]}
	}
	pauses := retry.New(parkAgain, longestPark)
	attempts := l.s.env.Health.Attempts(healthLetters)
	for {
		_, err := l.s.env.Bus.DeadLetters().Park(ctx, p)
		if err == nil {
			attempts.Succeeded()
			return nil
		}
		if !bus.Retryable(err) || ctx.Err() != nil {
			return fmt.Errorf("park record %d: %w", r.Record.Offset, err)
		}
		attempts.Failed(err)
		if pauses.Wait(ctx) != nil {
			return fmt.Errorf("park record %d: %w", r.Record.Offset, err)
		}
	}
}
