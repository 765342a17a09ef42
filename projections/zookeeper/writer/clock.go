package writer

import (
	"sync"
	"time"

	"github.com/monolith-go/monolith/events"
)

// logClock tells the log's time, by which nodes were written and by which their time to
// live is over: the newest record's, and what has passed since by a clock that nobody
// sets. The wall clock of this machine may jump; it decides nothing.
type logClock struct {
	mu   sync.Mutex
	last time.Time // of the record folded last
	at   time.Time // when that was, with a monotonic reading
}

// folded is part of a hook of the tree. Several parts of one record count once.
func (c *logClock) folded(r events.Recorded) {
	if r.Part > 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.at = r.Time, time.Now()
}

// now is in Unix milliseconds, and 0 before the first record: nothing is over then.
func (c *logClock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return 0
	}
	return c.last.Add(time.Since(c.at)).UnixMilli()
}
