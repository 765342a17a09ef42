package feed

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
)

// Lag counts the records of a partition that are still to be learnt. What was read ahead is counted
// record by record, so that aborted records and markers between them are none; what nobody has read
// yet, by its offsets. Records that were parked, and those that have expired, are not to be learnt.
type Lag struct {
	mu         sync.Mutex
	read       int64   // behind what was read
	ahead      []int64 // the offsets of the records that were read and are not learnt, ascending
	first, end int64   // of the log, when it was last asked
}

// Begin says that all below next is learnt, and that what is behind it is read from offset on.
func (l *Lag) Begin(next, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read, l.ahead = max(next, offset), nil
}

// fetched says what was read behind the last, up to next.
func (l *Lag) fetched(recs []kafka.Record, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range recs {
		if r.Offset >= l.read {
			l.ahead = append(l.ahead, r.Offset)
		}
	}
	l.read = max(l.read, next)
}

// Learnt says that all below next is learnt or parked.
func (l *Lag) Learnt(next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.ahead) && l.ahead[n] < next {
		n++
	}
	l.ahead, l.read = l.ahead[n:], max(l.read, next)
}

// looked says where the log begins and ends.
func (l *Lag) looked(first, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first, l.end = first, end
}

// beyond says whether the log was seen to go on behind offset at. A nil Lag has seen nothing.
func (l *Lag) beyond(at int64) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end > at
}

// records is how many are left.
func (l *Lag) records() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.ahead)) + max(0, l.end-max(l.read, l.first))
}

// Measure asks, now and then, where the log begins and ends, and shows how many of the records below
// limit are left, until ctx ends. While the log does not answer nothing new is shown.
func (l *Lag) Measure(ctx context.Context, bounds func(context.Context) (first, end int64, err error), limit int64, every time.Duration, show func(records int64)) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if first, end, err := bounds(ctx); err == nil {
			l.looked(first, min(end, limit))
			show(l.records())
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// NoLimit is that of a partition whose end nobody knows.
const NoLimit = math.MaxInt64
