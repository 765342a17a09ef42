package zkserver

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// outbox holds what waits to be written to one connection, in order. Replies are bounded
// by their reader, which stops while there is no room; watch events, which nobody can
// hold back, by closing the connection.
type outbox struct {
	nc        net.Conn
	maxFrames int
	maxBytes  int

	mu      sync.Mutex
	cond    sync.Cond
	queue   []queued
	bytes   int // of replies
	notices int // bytes of watch events
	last    bool
	dead    bool
}

type queued struct {
	frame  []byte
	notice bool
}

func newOutbox(nc net.Conn, maxFrames, maxBytes int) *outbox {
	o := &outbox{nc: nc, maxFrames: maxFrames, maxBytes: maxBytes}
	o.cond.L = &o.mu
	return o
}

// reply queues a frame; last closes the connection behind it.
func (o *outbox) reply(frame []byte, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead || o.last {
		return
	}
	o.queue = append(o.queue, queued{frame, false})
	o.bytes += len(frame)
	o.last = last
	o.cond.Broadcast()
}

// notify queues a watch event, or gives the connection up: its client comes back and
// asks what it missed.
func (o *outbox) notify(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead || o.last {
		return
	}
	if o.notices+len(frame) > o.maxBytes {
		o.killLocked()
		return
	}
	o.queue = append(o.queue, queued{frame, true})
	o.notices += len(frame)
	o.cond.Broadcast()
}

// room waits until a further reply may be queued; false: the connection has ended.
func (o *outbox) room() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.dead && (len(o.queue) >= o.maxFrames || o.bytes >= o.maxBytes) {
		o.cond.Wait()
	}
	return !o.dead && !o.last
}

func (o *outbox) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue)
}

// kill closes the connection at once.
func (o *outbox) kill() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.killLocked()
}

func (o *outbox) killLocked() {
	if !o.dead {
		o.dead = true
		_ = o.nc.Close() // the peer learns of it; there is nobody else to tell
		o.cond.Broadcast()
	}
}

// take waits for frames; none: there will be no more.
func (o *outbox) take() []queued {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) == 0 && !o.dead && !o.last {
		o.cond.Wait()
	}
	if o.dead {
		return nil
	}
	q := o.queue
	o.queue, o.bytes, o.notices = nil, 0, 0
	o.cond.Broadcast()
	return q
}

// deadlined gives every write the same time, so that a slow reader who still reads is
// served and one who does not is let go.
type deadlined struct {
	net.Conn
	timeout time.Duration
}

func (d deadlined) Write(b []byte) (int, error) {
	if err := d.SetWriteDeadline(time.Now().Add(d.timeout)); err != nil {
		return 0, err
	}
	return d.Conn.Write(b)
}

// run writes until the connection ends.
func (o *outbox) run(timeout time.Duration, sent func(frames int)) {
	defer o.kill()
	w := bufio.NewWriterSize(deadlined{o.nc, timeout}, 64<<10)
	for {
		q := o.take()
		if len(q) == 0 {
			return
		}
		for _, f := range q {
			if _, err := w.Write(f.frame); err != nil {
				return
			}
		}
		if err := w.Flush(); err != nil {
			return
		}
		sent(len(q))
	}
}
