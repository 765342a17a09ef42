// Package writer is the write path of the ZooKeeper port: it takes what clients propose to
// the log, in order and many at a time, while it leads, and answers each proposal from the
// fold that decides it. It ends silent sessions and nodes whose time is over, and turns
// writes to paths that show a service's fact into that service's commands.
package writer

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/groupcommit"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

// writesQueued is how many proposals wait for the appender; further ones block.
const writesQueued = 8192

// errStopped answers what is left when the writer stops.
var errStopped = errors.New("the registry is stopping")

// Config of a Writer.
type Config struct {
	BZID   string
	Source string // the role that writes, in the header of every event
	Bus    bus.Bus
	Log    *slog.Logger
	Health *health.State    // nil: nobody looks
	Now    func() time.Time // times sessions

	// Answer bounds a service's answer to a command and the wait for its fact.
	Answer time.Duration
	// Lease is how long the leader's lease outlives it. Default 5s.
	Lease time.Duration
	// Sweep is the time between looks for containers and nodes whose time is over.
	// Default 5s.
	Sweep time.Duration
}

// Writer takes proposals to the log in the order in which they came, many per append,
// and answers each from the fold that decides it. The registry that holds the lease
// writes; what fences is the guard on the tree's subject, not the lease.
type Writer struct {
	cfg     Config
	subject events.Subject
	log     bus.Log
	leases  bus.Leases
	tree    *follow.Follower[view.State]
	route   router
	open    *sessionTable
	clock   logClock
	logger  *slog.Logger
	while   []func(context.Context) // what runs as long as this process writes

	queue  *groupcommit.Queue[*proposal]
	writer atomic.Bool
	under  atomic.Int64 // proposals on their way to the fold
	last   uint64       // of the tree's subject; the appender's own while writer is set
	prefix string       // of the ids of this process's proposals
	count  atomic.Uint64

	mu      sync.Mutex
	fence   string                 // id of the newest fence that was folded: whose it is writes
	waiting map[string][]*proposal // by event id: on their way to the fold
	folding []*proposal            // the fold's own: of the event that is being folded
}

// proposal is one event on its way, or, without event, a wish to know when all before it
// are in the log.
type proposal struct {
	event    *znode.Event
	size     int
	done     func(zxid uint64, o *tree.Outcome, err error)
	answered atomic.Bool
}

// finish answers a proposal unless somebody did before.
func (p *proposal) finish(zxid uint64, o *tree.Outcome, err error) {
	if p.answered.CompareAndSwap(false, true) {
		p.done(zxid, o, err)
	}
}

// New is a writer of the namespace's tree. It sets no hook and starts nothing: set Folded
// on the tree behind the hooks that must run before answers are given.
func New(cfg Config, tree *follow.Follower[view.State]) *Writer {
	limits := groupcommit.Limits{Queued: writesQueued, Count: batchEvents, Bytes: batchBytes}
	cfg.Lease, cfg.Sweep = cmp.Or(cfg.Lease, 5*time.Second), cmp.Or(cfg.Sweep, 5*time.Second)
	return &Writer{
		cfg: cfg, subject: znode.Subject(cfg.BZID),
		log: cfg.Bus.Log(), leases: cfg.Bus.Leases(), tree: tree, logger: cfg.Log, route: newRouter(cfg, tree),
		open: newSessionTable(cfg.BZID, cfg.Now), queue: groupcommit.New(limits, func(p *proposal) int { return p.size }),
		prefix: "zk-" + rand.Text() + "-", waiting: map[string][]*proposal{},
	}
}

// While has run called as long as this process writes, with a context that ends with the
// term. It must be called before Run.
func (w *Writer) While(run func(context.Context)) { w.while = append(w.while, run) }

// Propose is server.Proposer's.
func (w *Writer) Propose(e *znode.Event, done func(uint64, *tree.Outcome, error)) {
	if !w.writer.Load() {
		done(0, nil, errNotWriter)
		return
	}
	if c := w.route.match(e.GetProposed()); c != nil {
		w.route.run(c, w.flush, done)
		return
	}
	w.enqueue(&proposal{event: e, done: done})
}

// Touch is server.Proposer's.
func (w *Writer) Touch(session int64) { w.open.touch(session) }

// Writable is server.Proposer's.
func (w *Writer) Writable() bool { return w.writer.Load() }

func (w *Writer) enqueue(p *proposal) {
	if p.event != nil {
		if p.size = p.event.Size(); p.size > catalog.MaxBytes {
			p.done(0, nil, fmt.Errorf("%w: a write of %d bytes, at most %d are stored", bus.ErrTooLarge, p.size, catalog.MaxBytes))
			return
		}
	}
	w.queue.In() <- p
	if !w.writer.Load() { // the appender has gone, perhaps before this came: nobody else would answer
		w.fail(errNotWriter)
	}
}

// flush returns once everything proposed before is in the tree.
func (w *Writer) flush(ctx context.Context) error {
	at := make(chan uint64, 1)
	failed := make(chan error, 1)
	w.enqueue(&proposal{done: func(seq uint64, _ *tree.Outcome, err error) {
		if err != nil {
			failed <- err
			return
		}
		at <- seq
	}})
	select {
	case seq := <-at:
		return w.tree.Wait(ctx, seq)
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Folded is a hook of the tree: it answers what this event decides.
func (w *Writer) Folded(t view.State, r events.Recorded) {
	w.clock.folded(r)
	e, ok := r.Event.(*znode.Event)
	if !ok || r.Subject != w.subject { // another namespace's: its fence is none of ours
		return
	}
	w.open.folded(r.Subject, e, t.Effects())
	if r.Part == 0 {
		w.mu.Lock()
		if isFence(e) {
			w.fence = r.Header.ID
		}
		w.folding = w.waiting[r.Header.ID]
		w.forget(r.Header.ID)
		w.mu.Unlock()
	}
	if r.Part < len(w.folding) {
		// Before the last part the answer's zxid is the one before: a client that loses
		// its connection now asks again for what the other parts changed.
		w.folding[r.Part].finish(t.Seq, t.Effects().Outcome, nil)
	}
	if !r.More {
		w.folding = nil
	}
}

// forget is called with the lock held.
func (w *Writer) forget(id string) {
	w.under.Add(-int64(len(w.waiting[id])))
	delete(w.waiting, id)
}

// Run holds the writer's lease whenever it can be had, and writes meanwhile. Everything
// proposed is answered when it returns.
func (w *Writer) Run(ctx context.Context) error {
	err := w.lead(ctx)
	w.mu.Lock()
	left := w.waiting // in the log, and beyond what the tree has folded
	w.waiting = map[string][]*proposal{}
	w.under.Store(0)
	w.mu.Unlock()
	for _, pack := range left {
		for _, p := range pack {
			p.finish(0, nil, errStopped)
		}
	}
	return err
}
