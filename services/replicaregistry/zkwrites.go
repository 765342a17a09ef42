package replicaregistry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/zookeeper/ensemble"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/services"
)

const (
	writesQueued = 8192      // proposals that wait for the appender; further ones block
	batchEvents  = 1000      // proposals of one append: as many events as the bus takes
	batchBytes   = 4 << 20   // of one append
	packFrom     = 9         // proposals from which on they share an event of the log
	halvedFrom   = 256       // proposals under way from which on they are stored in two halves
	packBytes    = 256 << 10 // of one such event, unless it is one proposal
	writerLease  = 5 * time.Second
	regroup      = time.Millisecond     // longest that clients just answered are awaited
	retryFirst   = 5 * time.Millisecond // between attempts while the bus does not answer
	retryLast    = 500 * time.Millisecond
	patience     = 5 // attempts that fail before the role's health shows it
)

// writesProblem is what the role's health calls writes that cannot be stored.
const writesProblem = "zookeeper writes"

// errNotWriter is why a proposal is refused while another registry writes.
var errNotWriter = errors.New("another registry of this namespace writes: connect to that one")

var (
	errStopped   = errors.New("the registry is stopping")
	errLeaseLost = errors.New("the writer's lease is lost")
	errFenced    = fmt.Errorf("%w: it has put its fence behind ours in the log", errNotWriter)
)

// writes takes proposals to the log in the order in which they came, many per append,
// and answers each from the fold that decides it. The registry that holds the lease
// writes; what fences is the guard on the tree's subject, not the lease.
type writes struct {
	bzid    string
	subject events.Subject
	log     bus.Log
	leases  bus.Leases
	tree    *follow.Follower[view.State]
	route   router
	open    *zkSessions
	clock   logClock
	logger  *slog.Logger
	health  *health.State
	foreign *foreigners      // nil: nobody makes facts of foreign agents' nodes
	mirror  *ensemble.Mirror // nil: none; it runs where the writes are
	every   time.Duration    // between looks for containers and nodes whose time is over
	lease   time.Duration    // the writer's

	queue  chan *proposal
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
	done     func(zxid uint64, o *view.Outcome, err error)
	answered atomic.Bool
}

// finish answers a proposal unless somebody did before.
func (p *proposal) finish(zxid uint64, o *view.Outcome, err error) {
	if p.answered.CompareAndSwap(false, true) {
		p.done(zxid, o, err)
	}
}

// newWrites sets no hook and starts nothing: set folded on the tree behind the hooks
// that must run before answers are given.
func newWrites(env services.Env, tree *follow.Follower[view.State], now func() time.Time) *writes {
	w := &writes{
		bzid: env.BZID, subject: znode.Subject(env.BZID),
		log: env.Bus.Log(), leases: env.Bus.Leases(), tree: tree, logger: env.Log, health: env.Health,
		open: newZKSessions(env.BZID, now), every: 5 * time.Second, lease: writerLease,
		queue: make(chan *proposal, writesQueued), prefix: "zk-" + rand.Text() + "-", waiting: map[string][]*proposal{},
	}
	w.route = router{bzid: env.BZID, log: env.Bus.Log(), turns: &turns{of: map[string]*turn{}}, commands: env.Bus.Commands(), letters: env.Bus.DeadLetters(), tree: tree, logger: env.Log}
	return w
}

// Propose is zkserver.Proposer's.
func (w *writes) Propose(e *znode.Event, done func(uint64, *view.Outcome, error)) {
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

// Touch is zkserver.Proposer's.
func (w *writes) Touch(session int64) { w.open.touch(session) }

// Writable is zkserver.Proposer's.
func (w *writes) Writable() bool { return w.writer.Load() }

func (w *writes) enqueue(p *proposal) {
	if p.event != nil {
		if p.size = p.event.Size(); p.size > catalog.MaxBytes {
			p.done(0, nil, fmt.Errorf("%w: a write of %d bytes, at most %d are stored", bus.ErrTooLarge, p.size, catalog.MaxBytes))
			return
		}
	}
	w.queue <- p
	if !w.writer.Load() { // the appender has gone, perhaps before this came: nobody else would answer
		w.fail(errNotWriter)
	}
}

// flush returns once everything proposed before is in the tree.
func (w *writes) flush(ctx context.Context) error {
	at := make(chan uint64, 1)
	failed := make(chan error, 1)
	w.enqueue(&proposal{done: func(seq uint64, _ *view.Outcome, err error) {
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

// folded is the tree's hook: it answers what this event decides.
func (w *writes) folded(t view.State, r events.Recorded) {
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
func (w *writes) forget(id string) {
	w.under.Add(-int64(len(w.waiting[id])))
	delete(w.waiting, id)
}

// run holds the writer's lease whenever it can be had, and writes meanwhile. Everything
// proposed is answered when it returns.
func (w *writes) run(ctx context.Context) error {
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

// lead asks for the lease again and again until ctx ends, and writes while it holds it.
func (w *writes) lead(ctx context.Context) error {
	wait := retry.New(retryLast/2, 2*retryLast)
	for ctx.Err() == nil {
		began := time.Now()
		lease, release, err := w.leases.Acquire(ctx, w.bzid+".znode.writer", w.prefix, w.lease)
		if err == nil {
			err = w.write(ctx, lease)
			release()
		}
		if ctx.Err() == nil {
			if time.Since(began) > w.lease {
				wait.Reset() // it went well for a while
			}
			w.logger.Warn("zookeeper writes given up; trying for the lease again", "bzid", w.bzid, "err", err)
			_ = wait.Wait(ctx) // the loop asks ctx
		}
	}
	return nil
}

// write is one term: it ends with the lease, with ctx, or when the bus fails for good.
func (w *writes) write(ctx context.Context, lease bus.Lease) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		select {
		case <-lease.Lost:
			return errLeaseLost
		case <-ctx.Done():
			return nil
		}
	})
	g.Go(func() error {
		if err := w.acquire(ctx); err != nil {
			return err
		}
		w.logger.Info("zookeeper writes taken over", "bzid", w.bzid, "epoch", lease.Epoch)
		w.writer.Store(true)
		g.Go(func() error { w.expire(ctx); return nil })
		g.Go(func() error { w.sweep(ctx); return nil })
		if w.foreign != nil {
			g.Go(func() error { w.foreign.run(ctx); return nil })
		}
		if w.mirror != nil {
			g.Go(func() error { w.mirror.Run(ctx); return nil })
		}
		err := w.append(ctx)
		w.writer.Store(false)
		w.fail(errNotWriter)
		return err
	})
	return g.Wait()
}

// fail answers everything in the queue.
func (w *writes) fail(err error) {
	for {
		select {
		case p := <-w.queue:
			p.finish(0, nil, err)
		default:
			return
		}
	}
}

// newFence is the proposal with which a term begins: nobody's, and of nothing.
func newFence() *znode.Event {
	return &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Multi: true}}}
}

func isFence(e *znode.Event) bool {
	p := e.GetProposed()
	return p.GetMulti() && p.GetSession() == 0 && len(p.GetOps()) == 0
}

// fenced says whether somebody else's term has begun since ours did.
func (w *writes) fenced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writer.Load() && !strings.HasPrefix(w.fence, w.prefix)
}

// acquire catches up and appends a fence, so that whatever an earlier writer has on its
// way conflicts, and grants every session one full time-out.
func (w *writes) acquire(ctx context.Context) error {
	fence := &proposal{event: newFence(), done: func(uint64, *view.Outcome, error) {}}
	if err := w.catchUp(ctx); err != nil {
		return err
	}
	if err := w.store(ctx, [][]*proposal{{fence}}); err != nil {
		return err
	}
	if err := w.tree.Wait(ctx, w.last); err != nil {
		return err
	}
	w.tree.Read(w.open.reset)
	return nil
}

func (w *writes) catchUp(ctx context.Context) error {
	wait := retry.New(retryFirst, retryLast)
	for {
		last, err := w.log.LastOf(ctx, w.subject)
		if err == nil {
			w.last = last
			return w.tree.Wait(ctx, last)
		}
		if !bus.Retryable(err) || wait.Wait(ctx) != nil {
			return fmt.Errorf("find the end of %s: %w", w.subject, err)
		}
	}
}

// append stores batch after batch. What waits while one is being stored is the next.
func (w *writes) append(ctx context.Context) error {
	var batch []*proposal  // taken from the queue and not stored yet, the oldest first
	var took time.Duration // by the last append
	last, peak := 0, 0     // proposals in it, and of late not decided at a time
	defer func() {
		for _, p := range batch {
			p.finish(0, nil, errNotWriter)
		}
	}()
	for {
		if len(batch) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case p := <-w.queue:
				batch = append(batch, p)
			}
		}
		batch = w.gather(batch)
		// The clients that were just answered are about to ask again: they are awaited for a
		// part of the time that an append takes, else every other event holds but a few.
		for until := time.Now().Add(min(took/4, regroup)); last >= packFrom && len(batch) < last/2 && time.Now().Before(until); {
			runtime.Gosched()
			batch = w.gather(batch)
		}
		if batch[0].event == nil {
			batch[0].finish(w.last, nil, nil)
			batch = batch[1:]
			continue
		}
		n := slices.IndexFunc(batch, func(p *proposal) bool { return p.event == nil })
		if n < 0 {
			n = len(batch)
		}
		peak = max(len(batch)+len(w.queue)+int(w.under.Load()), peak-peak/8)
		n = min(n, atMost(peak, len(w.queue)))
		packs, later := coalesce(batch[:n])
		rest := slices.Concat(later, batch[n:])
		began := time.Now()
		err := w.store(ctx, packs)
		took, last = time.Since(began), n
		if err != nil && ctx.Err() == nil && (errors.Is(err, events.ErrInvalid) || errors.Is(err, bus.ErrTooLarge)) {
			err = w.splitRefused(ctx, packs)
		}
		batch = rest
		if err != nil {
			for _, in := range packs {
				for _, p := range in {
					p.finish(0, nil, err)
				}
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errFenced) {
			return err
		}
	}
}

// gather adds what waits, as much as one append takes.
func (w *writes) gather(batch []*proposal) []*proposal {
	size := 0
	for _, p := range batch {
		size += p.size
	}
	for len(batch) < batchEvents && size < batchBytes {
		select {
		case p := <-w.queue:
			batch, size = append(batch, p), size+p.size
		default:
			return batch
		}
	}
	return batch
}

// splitRefused stores one by one what could not be stored together, and refuses the culprits.
func (w *writes) splitRefused(ctx context.Context, packs [][]*proposal) error {
	for _, in := range packs {
		for i, p := range in {
			err := w.store(ctx, [][]*proposal{in[i : i+1]})
			if err == nil {
				continue
			}
			if ctx.Err() != nil {
				return err
			}
			p.finish(0, nil, err)
		}
	}
	return nil
}

// store appends an event for each pack behind everything else on the tree's subject. While the bus
// does not answer it repeats the same ids. A conflict is somebody else's event: it catches
// up and goes on, unless that was the fence of another writer, who had the lease meanwhile.
func (w *writes) store(ctx context.Context, packs [][]*proposal) (err error) {
	drafts := make([]bus.Draft, 0, len(packs))
	w.mu.Lock()
	for _, in := range packs {
		id := w.prefix + strconv.FormatUint(w.count.Add(1), 36)
		drafts = append(drafts, bus.Draft{
			Subject: w.subject, Event: pack(in), Header: events.Header{ID: id, Source: source},
			Expect: bus.Any, Binary: true,
		})
		w.waiting[id] = in
		w.under.Add(int64(len(in)))
	}
	w.mu.Unlock()
	defer func() {
		if err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, d := range drafts {
				w.forget(d.Header.ID)
			}
		}
	}()
	defer w.health.OK(writesProblem)
	wait := retry.New(retryFirst, retryLast)
	for try := 0; ; try++ {
		if w.fenced() {
			return errFenced
		}
		drafts[0].Expect = w.last
		seqs, err := w.log.Append(ctx, drafts...)
		if err != nil && try >= patience {
			w.health.Fail(writesProblem, err)
		}
		switch {
		case err == nil:
			w.last = seqs[len(seqs)-1]
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", errNotWriter, err)
		case errors.Is(err, bus.ErrRepeated): // stored, by an attempt whose answer was lost, and not seen everywhere yet
			if err := w.catchUp(ctx); err != nil {
				return err
			}
			if w.decided(drafts) {
				return nil
			}
		case errors.Is(err, bus.ErrConflict):
			w.logger.Warn("zookeeper write conflicts with another registry's", "bzid", w.bzid, "expected", w.last)
			if err := w.catchUp(ctx); err != nil {
				return err
			}
		case !bus.Retryable(err):
			return err
		}
		if err := wait.Wait(ctx); err != nil {
			return fmt.Errorf("%w: %w", errNotWriter, err)
		}
	}
}

// decided says whether every event of an append is in the tree.
func (w *writes) decided(drafts []bus.Draft) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(drafts, func(d bus.Draft) bool { return w.waiting[d.Header.ID] != nil })
}

// expire proposes the end of sessions that were silent for too long. While the tree is
// locked nobody's requests are read, so that time is nobody's silence.
func (w *writes) expire(ctx context.Context) {
	for tick(ctx, sessionTick) {
		asked := w.open.since()
		w.tree.Read(func(view.State) {})
		w.open.excuse(w.open.since() - asked)
		for _, id := range w.open.silent() {
			w.enqueue(&proposal{
				event: &znode.Event{Body: &znode.Event_SessionClosed{SessionClosed: &znode.SessionClosed{Session: id, Reason: znode.Expired}}},
				done: func(_ uint64, _ *view.Outcome, err error) {
					if err != nil {
						w.open.spare(id)
						return
					}
					w.logger.Info("zookeeper session expired", "session", fmt.Sprintf("0x%x", id))
				},
			})
		}
	}
}

// sweep proposes the end of containers that have lost their children and of nodes whose
// time to live is over.
func (w *writes) sweep(ctx context.Context) {
	for tick(ctx, w.every) {
		var over []string
		w.tree.Read(func(t view.State) { over = t.Over(w.clock.now()) })
		swept := make(chan struct{}, len(over))
		for _, path := range over {
			w.enqueue(&proposal{
				event: &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Ops: []*znode.Op{
					{Op: &znode.Op_DeleteContainer{DeleteContainer: &znode.DeleteContainer{Path: path}}}}}}},
				done: func(uint64, *view.Outcome, error) { swept <- struct{}{} },
			})
		}
		for range over { // or the next look would propose them again
			select {
			case <-swept:
			case <-ctx.Done():
				return
			}
		}
	}
}

// tick waits, and is false when ctx ends first.
func tick(ctx context.Context, d time.Duration) bool { return retry.Sleep(ctx, d) == nil }
