package trainer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/retry"
)

// park puts a record that cannot be learnt into the dead letters before its offset
// counts as learnt.
func (l *learner) park(ctx context.Context, r rejected) error {
	p := bus.Parked{
		Reason: r.reason, By: source,
		Stream:    fmt.Sprintf("kafka:%s/%d", r.record.Topic, r.record.Partition),
		StreamSeq: uint64(r.record.Offset), Subject: r.record.Topic, Data: r.record.Value,
	}
	for _, k := range slices.Sorted(maps.Keys(r.record.Headers)) {
		if p.Header == nil {
			p.Header = map[string][]string{}
		}
		p.Header[k] = []string{r.record.Headers[k]}
	}
	pauses := retry.New(lookAgain, longestLook)
	attempts := l.s.env.Health.Attempts(healthLetters)
	for {
		_, err := l.s.env.Bus.DeadLetters().Park(ctx, p)
		if err == nil {
			attempts.Succeeded()
			return nil
		}
		if !bus.Retryable(err) || ctx.Err() != nil {
			return fmt.Errorf("park record %d: %w", r.record.Offset, err)
		}
		attempts.Failed(err)
		if pauses.Wait(ctx) != nil {
			return fmt.Errorf("park record %d: %w", r.record.Offset, err)
		}
	}
}
