package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// request is a write that waits for its fold, or what waits behind one.
type request struct {
	head  wire.RequestHeader
	body  []byte    // nil: a write
	shape []wire.Op // of a multi's parts
	start time.Time
	held  int64 // bytes of the server's budget, given back when it leaves the pipeline, or is decided

	decided bool
	reply   []byte // a frame that was decided before its turn
}

// pipeline keeps a connection's requests in their order: while a write waits for the
// log, everything behind it waits too, and is answered by whoever decides the write.
// Other sessions do not wait. Only the connection's reader adds to it.
type pipeline struct {
	limit int
	moved chan struct{} // holds one token after something has left

	mu    sync.Mutex // taken behind the tree's lock, before those of watches and outbox
	queue []*request
}

func newPipeline(limit int) pipeline {
	return pipeline{limit: limit, moved: make(chan struct{}, 1)}
}

func (p *pipeline) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue)
}

// add queues q; with onlyBehind, false says that nothing is there to wait behind.
func (p *pipeline) add(q *request, onlyBehind bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if onlyBehind && len(p.queue) == 0 {
		return false
	}
	p.queue = append(p.queue, q)
	return true
}

// pop is called with the lock held, and returns what the request held: of a write
// nothing, whose decision gives it back.
func (p *pipeline) pop() (held int64) {
	if q := p.queue[0]; q.body != nil {
		held = q.held
	}
	p.queue[0] = nil
	p.queue = p.queue[1:]
	if len(p.queue) == 0 {
		p.queue = nil
	}
	select {
	case p.moved <- struct{}{}:
	default:
	}
	return held
}

// abandon drops what still waits once the connection has ended, and returns what its
// reads held. Writes may yet be decided.
func (p *pipeline) abandon() (held int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.queue {
		if q.body != nil {
			held += q.held
		}
	}
	p.queue = nil
	return held
}

// atMost waits until no more than n requests wait.
func (c *conn) atMost(ctx context.Context, n int) error {
	if c.pipe.len() <= n {
		return nil
	}
	return c.pauseReading(ctx, func(ctx context.Context) error {
		for c.pipe.len() > n {
			select {
			case <-c.pipe.moved:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
}

// propose sends a write on its way. Its answer is queued by the fold that decides it.
func (c *conn) propose(ctx context.Context, q *request, e *znode.Event) error {
	if err := c.atMost(ctx, c.pipe.limit-1); err != nil {
		return err
	}
	select { // the server's limit: whoever is over it is not read
	case c.s.slots <- struct{}{}:
	default:
		if err := c.pauseReading(ctx, c.slot); err != nil {
			return err
		}
	}
	q.held, c.held = c.held, 0
	c.pipe.add(q, false)
	c.s.cfg.Proposer.Propose(e, func(zxid uint64, o *tree.Outcome, err error) {
		<-c.s.slots
		c.s.waiting.giveBack(q.held)
		c.decide(q, zxid, o, err)
	})
	return nil
}

// slot waits for one of the server's.
func (c *conn) slot(ctx context.Context) error {
	select {
	case c.s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// decide answers a write, and what has waited behind it. In the fold that decided it the
// answers stand in the connection exactly where their zxid belongs among watch events.
func (c *conn) decide(q *request, zxid uint64, o *tree.Outcome, err error) {
	if err == nil && o == nil {
		err = errors.New("a proposal was decided without an outcome")
	}
	if err != nil {
		c.s.logger.Warn("zookeeper write not known to be stored; its connection is closed", "session", hex(c.Session()), "op", opName(q.head.Op), "err", err)
		c.out.Kill(nil)
		return
	}
	f := c.s.folding.Load()
	inside := f != nil && f.outcome == o // the fold's: nobody else changes the tree now
	c.pipe.mu.Lock()
	defer c.pipe.mu.Unlock()
	q.decided = true
	if len(c.pipe.queue) > 0 && c.pipe.queue[0] == q {
		encodeOutcome(c.out.Begin(), q, zxid, o)
		c.out.End()
		var now time.Time
		if inside {
			now = c.s.at // the fold writes it
		} else {
			now = time.Now()
		}
		c.answeredAt(now, q.head, q.start, int64(zxid))
		c.pipe.pop()
	} else {
		q.reply = wire.Frame(func(w *wire.Writer) { w.B = w.B[:0]; w.Int32(0); encodeOutcome(w, q, zxid, o) })
	}
	if q.head.Op == wire.OpCloseSession {
		c.out.Finish()
		return
	}
	if inside {
		c.drain(f.tree)
		if f.more { // what follows may have answers for it too: one write takes them all
			if !c.unsent {
				c.unsent = true
				c.s.unsent = append(c.s.unsent, c)
			}
			return
		}
		c.s.sendOff()
	} else if len(c.pipe.queue) > 0 {
		select { // elsewhere the tree must be locked, which the writer may do
		case c.behind <- struct{}{}:
		default:
		}
	}
	c.out.Nudge()
}

// catchUp answers what waits and need not wait any longer.
func (c *conn) catchUp() {
	c.s.tree.Read(func(t view.State) {
		c.pipe.mu.Lock()
		defer c.pipe.mu.Unlock()
		c.drain(t)
	})
	c.out.Flush()
}

// drain answers from the head of the pipeline up to the next write that is not decided.
// The caller holds the pipeline's lock and one of the tree's.
func (c *conn) drain(t view.State) {
	for len(c.pipe.queue) > 0 && !c.out.Ended() {
		q := c.pipe.queue[0]
		switch {
		case q.body != nil:
			var r wire.Reader
			r.Reset(q.body)
			c.s.read(c, place{live: t}, q.head, &r)
			c.answered(q.head, q.start, int64(t.Seq))
			c.out.Nudge()
		case q.reply != nil:
			c.out.Push(q.reply)
			c.answered(q.head, q.start, int64(t.Seq))
		default:
			return
		}
		c.s.waiting.giveBack(c.pipe.pop())
	}
}
