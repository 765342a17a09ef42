package trainer

import (
	"context"
	"errors"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

const (
	pauseAfterError     = time.Second           // of the chief, between attempts at what it leads
	longestPause        = 10 * time.Second      // between attempts at a partition
	unsettled           = 20                    // of those that are no failure when a shard comes back
	pauseBeforeCommands = 20 * time.Millisecond // a shard that is ready takes commands within about this time
	settle              = 20 * time.Millisecond
)

// tries counts the attempts at a partition that failed in a row, and paces them.
type tries struct {
	pauses, settling   *retry.Backoff
	failures, unsteady int // the latter are no failures when a shard comes back
}

func newTries() *tries {
	return &tries{pauses: retry.New(settle, longestPause), settling: retry.New(settle, 25*settle)}
}

func (t *tries) well() {
	t.pauses.Reset()
	t.settling.Reset()
	t.failures, t.unsteady = 0, 0
}

// failed notes how an attempt ended: with what pause the next one is made, and whether people
// should see it.
func (t *tries) failed(err error) (wait *retry.Backoff, tell bool) {
	wait = t.pauses
	t.failures++
	switch {
	case errors.Is(err, errMoved):
		wait = t.settling
		t.failures--
	case unsettles(refusal(err)):
		wait = t.settling
		if t.unsteady++; t.unsteady < unsettled {
			t.failures--
		}
	}
	return wait, t.failures >= health.Reported || errors.Is(err, errDiverged)
}

// unsettles says whether a shard refuses because it, or another, came back.
func unsettles(code rowwire.Code) bool {
	return code == rowwire.Gap || code == rowwire.Overlap || code == rowwire.WrongGeneration
}

// lost says whether the log no longer holds what the job's offsets name.
func lost(err error) bool {
	return errors.Is(err, kafka.ErrOutOfRange) || errors.Is(err, kafka.ErrTruncated) ||
		errors.Is(err, kafka.ErrTopicChanged) || errors.Is(err, kafka.ErrCorrupt)
}

func refusal(err error) rowwire.Code {
	var e *rowwire.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
