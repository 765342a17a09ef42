// Package attempt counts and paces the attempts at learning a partition, and tells apart why one failed.
package attempt

import (
	"errors"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

const (
	longestPause = 10 * time.Second // between attempts at a partition
	unsettled    = 20               // of those that are no failure when a shard comes back

	// Settle is the first pause between attempts.
	Settle = 20 * time.Millisecond
)

// Tries counts the attempts at a partition that failed in a row, and paces them.
type Tries struct {
	pauses, settling   *retry.Backoff
	failures, unsteady int // the latter are no failures when a shard comes back
}

// New has counted none.
func New() *Tries {
	return &Tries{pauses: retry.New(Settle, longestPause), settling: retry.New(Settle, 25*Settle)}
}

// Well ends a row of failures.
func (t *Tries) Well() {
	t.pauses.Reset()
	t.settling.Reset()
	t.failures, t.unsteady = 0, 0
}

// Failed notes how an attempt ended: with what pause the next one is made, and whether people
// should see it, which with urgent they do the first time.
func (t *Tries) Failed(err error, urgent bool) (wait *retry.Backoff, tell bool) {
	wait = t.pauses
	t.failures++
	switch {
	case errors.Is(err, shards.ErrMoved):
		wait = t.settling
		t.failures--
	case Unsettles(Refusal(err)):
		wait = t.settling
		if t.unsteady++; t.unsteady < unsettled {
			t.failures--
		}
	}
	return wait, urgent || t.failures >= health.Reported
}

// Unsettles says whether a shard refuses because it, or another, came back.
func Unsettles(code rowwire.Code) bool {
	return code == rowwire.Gap || code == rowwire.Overlap || code == rowwire.WrongGeneration
}

// Lost says whether the log no longer holds what the job's offsets name.
func Lost(err error) bool {
	return errors.Is(err, kafka.ErrOutOfRange) || errors.Is(err, kafka.ErrTruncated) ||
		errors.Is(err, kafka.ErrTopicChanged) || errors.Is(err, kafka.ErrCorrupt)
}

// Refusal is the code with which a shard refused, 0 for any other error.
func Refusal(err error) rowwire.Code {
	var e *rowwire.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}
