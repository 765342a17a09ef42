package server

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

// errSlow is why a connection is given up whose client does not read.
var errSlow = errors.New("slow reader")

// outbox holds the frames that wait to be written to one connection, in order. The
// connection's reader writes what it has answered itself; what comes from the fold,
// watch events and replies to writes, is written by the outbox's own goroutine. Whoever
// queues never waits: the reader waits by writing, and for everybody else a connection
// with more than maxBytes waiting is given up.
type outbox struct {
	nc       net.Conn
	raw      syscall.RawConn // nil: nc is no plain socket
	maxBytes int
	sent     func(frames int) // called without a lock after each write
	sized    func(bytes int)  // nil, or called with the lock for each frame

	wake chan struct{} // holds one token while the writer has something to do
	gone chan struct{} // closed with dead

	mu      sync.Mutex
	w       wire.Writer // what is pending
	start   int         // of the frame between begin and end
	frames  int         // pending
	spare   []byte      // the buffer written last, to be used again
	writing bool        // somebody is in flush
	last    bool        // nothing is queued any more; the connection closes behind what is pending
	dead    bool
	cause   error // why it was given up; nil: the peer or the server ended it

	since atomic.Int64 // Unix ns at which the write in progress began, 0: none
}

const (
	spareBytes = 64 << 10  // the largest buffer kept for the next batch
	chunkBytes = 256 << 10 // of one write, so that a slow client that reads can be told from one that does not
)

func newOutbox(nc net.Conn, maxBytes int, sent func(int)) *outbox {
	return &outbox{nc: nc, raw: rawOf(nc), maxBytes: maxBytes, sent: sent, wake: make(chan struct{}, 1), gone: make(chan struct{})}
}

// begin locks the outbox and returns where the next frame is to be written, up to end.
// The writer is not woken: the caller flushes or calls nudge afterwards.
func (o *outbox) begin() *wire.Writer {
	o.mu.Lock()
	if o.w.B == nil {
		o.w.B, o.spare = o.spare[:0], nil
	}
	o.start = len(o.w.B)
	o.w.Int32(0)
	return &o.w
}

func (o *outbox) end() {
	defer o.mu.Unlock()
	if o.dead || o.last {
		o.w.B = o.w.B[:o.start]
		return
	}
	binary.BigEndian.PutUint32(o.w.B[o.start:], uint32(len(o.w.B)-o.start-4))
	o.framed(len(o.w.B) - o.start - 4)
}

func (o *outbox) framed(bytes int) {
	o.frames++
	if o.sized != nil {
		o.sized(bytes)
	}
}

// push queues a whole frame and wakes the writer.
func (o *outbox) push(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.put(frame) {
		o.nudgeLocked()
	}
}

// add queues a whole frame; the caller has it written, by nudge or flushNow.
func (o *outbox) add(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.put(frame)
}

// text queues what is no frame.
func (o *outbox) text(s string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.w.B = append(o.w.B, s...)
}

// put is called with the lock held; false: nothing is queued any more.
func (o *outbox) put(frame []byte) bool {
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

// nudge has the writer write what is pending. A connection in which too much is pending
// is given up: its client comes back and asks what it has missed.
func (o *outbox) nudge() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nudgeLocked()
}

func (o *outbox) nudgeLocked() {
	if len(o.w.B) > o.maxBytes {
		o.killLocked(fmt.Errorf("%w: %d bytes wait for the client to read, %d are allowed", errSlow, len(o.w.B), o.maxBytes))
		return
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// finish closes the connection once what is pending has been written.
func (o *outbox) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = true
	o.nudgeLocked()
}

// waiting is how many bytes and frames wait.
func (o *outbox) waiting() (bytes, frames int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.w.B), o.frames
}

// kill closes the connection at once; cause, if any, is what the log gets to read.
func (o *outbox) kill(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.killLocked(cause)
}

func (o *outbox) killLocked(cause error) {
	if !o.dead {
		o.dead, o.cause = true, cause
		o.w.B, o.spare = nil, nil
		_ = o.nc.Close() // the peer learns of it; there is nobody else to tell
		close(o.gone)
	}
}

// ended says whether the connection has ended.
func (o *outbox) ended() bool {
	select {
	case <-o.gone:
		return true
	default:
		return false
	}
}

// why is the cause of a kill.
func (o *outbox) why() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cause
}

// flushNow writes as much of what is pending as the socket takes at once, and leaves the
// rest to the writer; all of it where the socket cannot be asked, or somebody else is at
// it.
func (o *outbox) flushNow() {
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

// flush writes all that is pending, unless somebody else is at it, who then writes that
// too.
func (o *outbox) flush() {
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

func (o *outbox) write(b []byte) error {
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

// overdue gives the connection up when one write has been in progress for longer than
// limit.
func (o *outbox) overdue(now time.Time, limit time.Duration) {
	if since := o.since.Load(); since != 0 && now.UnixNano()-since > int64(limit) {
		o.kill(fmt.Errorf("%w: the client has read nothing for %v", errSlow, limit))
	}
}
