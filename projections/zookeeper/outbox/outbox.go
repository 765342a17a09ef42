// Package outbox queues the frames that wait to be written to connections, so that
// whoever queues never waits for a client.
package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// ErrSlow is why a connection is given up whose client does not read.
var ErrSlow = errors.New("slow reader")

// Outbox holds the frames that wait to be written to one connection, in order. The
// connection's reader writes what it has answered itself; what comes from the fold,
// watch events and replies to writes, is written by the outbox's own goroutine. Whoever
// queues never waits: the reader waits by writing, and for everybody else a connection
// with more than maxBytes waiting is given up.
type Outbox struct {
	nc       net.Conn
	raw      syscall.RawConn // nil: nc is no plain socket
	maxBytes int
	sent     func(frames int) // called without a lock after each write
	sized    func(bytes int)  // nil, or called with the lock for each frame

	wake chan struct{} // holds one token while the writer has something to do
	gone chan struct{} // closed with dead

	mu      sync.Mutex
	w       wire.Writer // what is pending
	start   int         // of the frame between Begin and End
	frames  int         // pending
	spare   []byte      // the buffer written last, to be used again
	writing bool        // somebody is in Flush
	last    bool        // nothing is queued any more; the connection closes behind what is pending
	dead    bool
	cause   error // why it was given up; nil: the peer or the server ended it

	since atomic.Int64 // Unix ns at which the write in progress began, 0: none
}

const (
	spareBytes = 64 << 10  // the largest buffer kept for the next batch
	chunkBytes = 256 << 10 // of one write, so that a slow client that reads can be told from one that does not
)

// New makes the outbox of nc, which is closed when more than maxBytes wait. sent is called
// without a lock after each write, sized, if any, with the lock for each frame queued.
func New(nc net.Conn, maxBytes int, sent func(frames int), sized func(bytes int)) *Outbox {
	return &Outbox{nc: nc, raw: rawOf(nc), maxBytes: maxBytes, sent: sent, sized: sized, wake: make(chan struct{}, 1), gone: make(chan struct{})}
}

// Wake holds a token while there is something to Flush: the connection's writer waits here.
func (o *Outbox) Wake() <-chan struct{} { return o.wake }

// Gone is closed once the connection has ended.
func (o *Outbox) Gone() <-chan struct{} { return o.gone }

// Begin locks the outbox and returns where the next frame is to be written, up to End.
// The writer is not woken: the caller calls Flush or Nudge afterwards.
func (o *Outbox) Begin() *wire.Writer {
	o.mu.Lock()
	if o.w.B == nil {
		o.w.B, o.spare = o.spare[:0], nil
	}
	o.start = len(o.w.B)
	o.w.Int32(0)
	return &o.w
}

// End queues the frame that Begin began, and unlocks the outbox.
func (o *Outbox) End() {
	defer o.mu.Unlock()
	if o.dead || o.last {
		o.w.B = o.w.B[:o.start]
		return
	}
	binary.BigEndian.PutUint32(o.w.B[o.start:], uint32(len(o.w.B)-o.start-4))
	o.framed(len(o.w.B) - o.start - 4)
}

func (o *Outbox) framed(bytes int) {
	o.frames++
	if o.sized != nil {
		o.sized(bytes)
	}
}

// Push queues a whole frame and wakes the writer.
func (o *Outbox) Push(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.put(frame) {
		o.nudgeLocked()
	}
}

// Add queues a whole frame; the caller has it written, by Nudge or [Notifiers].
func (o *Outbox) Add(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.put(frame)
}

// Text queues what is no frame.
func (o *Outbox) Text(s string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.w.B = append(o.w.B, s...)
}

// put is called with the lock held; false: nothing is queued any more.
func (o *Outbox) put(frame []byte) bool {
	if o.dead || o.last {
		return false
	}
	if o.w.B == nil {
		o.w.B, o.spare = o.spare[:0], nil
	}
	o.w.B = append(o.w.B, frame...)
	o.framed(len(frame) - 4)
	return true
}

// Nudge has the writer write what is pending. A connection in which too much is pending
// is given up: its client comes back and asks what it has missed.
func (o *Outbox) Nudge() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nudgeLocked()
}

func (o *Outbox) nudgeLocked() {
	if len(o.w.B) > o.maxBytes {
		o.killLocked(fmt.Errorf("%w: %d bytes wait for the client to read, %d are allowed", ErrSlow, len(o.w.B), o.maxBytes))
		return
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Finish closes the connection once what is pending has been written.
func (o *Outbox) Finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = true
	o.nudgeLocked()
}

// Waiting is how many bytes and frames wait.
func (o *Outbox) Waiting() (bytes, frames int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.w.B), o.frames
}

// Kill closes the connection at once; cause, if any, is what the log gets to read.
func (o *Outbox) Kill(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.killLocked(cause)
}

func (o *Outbox) killLocked(cause error) {
	if !o.dead {
		o.dead, o.cause = true, cause
		o.w.B, o.spare = nil, nil
		_ = o.nc.Close() // the peer learns of it; there is nobody else to tell
		close(o.gone)
	}
}

// Ended says whether the connection has ended.
func (o *Outbox) Ended() bool {
	select {
	case <-o.gone:
		return true
	default:
		return false
	}
}

// Cause is what Kill was told.
func (o *Outbox) Cause() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cause
}

// flushNow writes as much of what is pending as the socket takes at once, and leaves the
// rest to the writer; all of it where the socket cannot be asked, or somebody else is at
// it.
func (o *Outbox) flushNow() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing || o.raw == nil || o.last || len(o.w.B) > chunkBytes {
		o.nudgeLocked()
		return
	}
	b, frames := o.w.B, o.frames
	if len(b) == 0 || o.dead {
		return
	}
	o.writing, o.w.B, o.frames = true, nil, 0
	o.mu.Unlock()
	n, err := writeNow(o.raw, b)
	if n == len(b) {
		o.sent(frames)
	}
	o.mu.Lock()
	o.writing = false
	switch {
	case err != nil:
		o.killLocked(nil)
	case o.dead:
	case n < len(b):
		o.w.B = append(b[n:], o.w.B...)
		o.frames += frames
		o.nudgeLocked()
	default:
		if cap(b) <= spareBytes {
			o.spare = b
		}
		if len(o.w.B) > 0 || o.last { // came meanwhile, and whoever brought it may have found us writing
			o.nudgeLocked()
		}
	}
}

// Flush writes all that is pending, unless somebody else is at it, who then writes that
// too.
func (o *Outbox) Flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing {
		return
	}
	o.writing = true
	for len(o.w.B) > 0 && !o.dead {
		b, n := o.w.B, o.frames
		o.w.B, o.frames = nil, 0
		o.mu.Unlock()
		err := o.write(b)
		if err == nil {
			o.sent(n)
		}
		o.mu.Lock()
		if err != nil {
			o.killLocked(nil)
		} else if cap(b) <= spareBytes && !o.dead {
			o.spare = b
		}
	}
	o.writing = false
	if o.last {
		o.killLocked(nil)
	}
}

func (o *Outbox) write(b []byte) error {
	defer o.since.Store(0)
	for len(b) > 0 {
		n := min(len(b), chunkBytes)
		o.since.Store(time.Now().UnixNano())
		if _, err := o.nc.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// Overdue gives the connection up when one write has been in progress for longer than
// limit.
func (o *Outbox) Overdue(now time.Time, limit time.Duration) {
	if since := o.since.Load(); since != 0 && now.UnixNano()-since > int64(limit) {
		o.Kill(fmt.Errorf("%w: the client has read nothing for %v", ErrSlow, limit))
	}
}
