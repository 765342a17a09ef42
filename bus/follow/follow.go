package follow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/internal/process/prom"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/durable"
)

// Options are all optional.
type Options struct {
	SnapshotDir   string                // one file per view lies here; "": no snapshots
	SnapshotEvery uint64                // events between snapshots; 0: 10,000
	Log           *slog.Logger          // nil: nothing is logged
	Metrics       prometheus.Registerer // nil: no metrics; followers that share one share the gauges
	LagEvery      time.Duration         // how often the lag gauge looks for the end of the log; 0: 1 s
}

// Follower keeps one view current. Run owns its goroutines; everything else may be
// called from anywhere, before, during and after Run.
type Follower[S any] struct {
	log  bus.Log
	view View[S]
	opt  Options
	lag  prometheus.Gauge

	failures prometheus.Counter // events whose fold panicked

	ready chan struct{}
	done  chan struct{} // closed when Run has returned

	mu      sync.RWMutex
	state   S
	at      mark          // record last folded
	moved   chan struct{} // closed at the next fold; nil: nobody asked
	changed chan struct{} // closed at the next fold that concerns the view; nil: nobody asked
	onEvent []func(S, events.Recorded)
	err     error // why Run ended

	saved  uint64         // Run's own: sequence of the newest snapshot
	saving sync.WaitGroup // an encoded snapshot that is being written
	rest   atomic.Int64   // Unix ns until when no further one begins; always, while one is being written

	hashing sync.Mutex // one hash at a time; guards hashed
	hashed  standing
}

// standing is a hash and the sequence it was taken at.
type standing struct {
	seq  uint64
	hash string // "": none was taken
}

// New makes a follower that stands before the first event until Run is called.
func New[S any](log bus.Log, v View[S], o Options) *Follower[S] {
	if o.SnapshotEvery == 0 {
		o.SnapshotEvery = 10_000
	}
	if o.LagEvery == 0 {
		o.LagEvery = time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Follower[S]{
		log: log, view: v, opt: o, lag: lagGauge(o.Metrics, v.Name), failures: failures(o.Metrics, v.Name, o.Log),
		ready: make(chan struct{}), done: make(chan struct{}),
		state: v.New(), at: mark{View: v.Name, BZID: v.bzid, Version: v.Version},
	}
}

// lagGauge is the view's gauge of monolith_projection_lag_events, unregistered when the
// registry refuses it.
func lagGauge(reg prometheus.Registerer, view string) prometheus.Gauge {
	vec, _ := prom.TryRegister(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "monolith_projection_lag_events",
		Help: "Events stored in the log and not folded into the view yet.",
	}, []string{"view"}))
	return vec.WithLabelValues(view)
}

// OnEvent has hook run after each fold, of a part where the view has parts, under the
// write lock, with the new state, behind the hooks set before it. Set it before Run; a restored snapshot calls nothing. It must
// not call the follower.
func (f *Follower[S]) OnEvent(hook func(S, events.Recorded)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onEvent = append(f.onEvent, hook)
}

// Run restores the newest snapshot, catches up and follows until ctx ends, which is no
// error. It writes snapshots as it goes and one more on its way out. Run once.
func (f *Follower[S]) Run(ctx context.Context) error {
	err := f.run(ctx)
	if ctx.Err() != nil {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("view %s: %w", f.view.Name, err)
	}
	f.mu.Lock()
	f.err = err
	f.mu.Unlock()
	close(f.done)
	return err
}

func (f *Follower[S]) run(ctx context.Context) error {
	last, err := f.log.Last(ctx)
	if err != nil {
		return fmt.Errorf("find the end of the log: %w", err)
	}
	if err := f.restore(ctx, last); err != nil {
		return err
	}
	if f.Seq() >= last {
		close(f.ready)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := f.view.follow(ctx, f.log, f.Seq()+1, 0, func(r events.Recorded) error { return f.fold(r, last) })
		if err == nil {
			err = errors.New("the log stopped following before it was told to")
		}
		return err
	})
	g.Go(func() error { f.watchLag(ctx); return nil })
	err = g.Wait()
	f.saving.Wait()
	if f.Seq() > f.saved {
		f.snapshot()
	}
	return err
}

func (f *Follower[S]) fold(r events.Recorded, last uint64) error {
	f.mu.Lock()
	if r.Seq <= f.at.Seq {
		f.mu.Unlock()
		return nil // redelivered
	}
	f.state = f.view.fold(f.state, r, f.hooks, f.failed)
	f.at = f.at.of(r)
	f.wake(f.view.concerns(r))
	f.mu.Unlock()

	if r.Seq >= last {
		select {
		case <-f.ready:
		default:
			close(f.ready)
		}
	}
	if r.Seq-f.saved >= f.opt.SnapshotEvery {
		if f.view.Encode != nil {
			f.snapshotBehind()
		} else {
			f.snapshot()
		}
	}
	return nil
}

// wake tells those who wait for a sequence and, if it has changed, those who wait for the
// state; the lock is held.
func (f *Follower[S]) wake(changed bool) {
	if f.moved != nil {
		close(f.moved)
		f.moved = nil
	}
	if changed && f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

func (f *Follower[S]) hooks(s S, r events.Recorded) {
	for _, hook := range f.onEvent {
		hook(s, r)
	}
}

// watchLag keeps the gauge current; a log that does not answer leaves the last figure.
func (f *Follower[S]) watchLag(ctx context.Context) {
	t := time.NewTicker(f.opt.LagEvery)
	defer t.Stop()
	for {
		ask, cancel := context.WithTimeout(ctx, f.opt.LagEvery)
		last, err := f.log.Last(ask)
		cancel()
		if err == nil {
			f.lag.Set(float64(last - min(last, f.Seq())))
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (f *Follower[S]) path() string {
	if f.view.Encode != nil {
		return filepath.Join(f.opt.SnapshotDir, f.view.key()+".snapshot")
	}
	return filepath.Join(f.opt.SnapshotDir, f.view.key()+".snapshot.gz")
}

// restore takes over the snapshot if it fits this build and this log. Whatever is wrong
// with it costs a longer replay, never a wrong state; only a log that does not answer is an
// error, since a replay may not be possible any more.
func (f *Follower[S]) restore(ctx context.Context, last uint64) error {
	if f.opt.SnapshotDir == "" {
		return nil
	}
	log := f.opt.Log.With("view", f.view.Name, "file", f.path())
	if err := durable.Sweep(f.path(), time.Now()); err != nil {
		log.Warn("unfinished snapshots not removed", "err", err)
	}
	f.mu.RLock()
	want := f.at
	f.mu.RUnlock()
	m, s, err := f.load(want)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		log.Warn("snapshot ignored: replaying from the first event", "err", err)
		return nil
	case m.Seq > last:
		log.Warn("snapshot ignored: it is beyond the end of the log, which must be another log", "seq", m.Seq, "last", last)
		return nil
	}
	id, at, err := f.stood(ctx, m.Seq)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		log.Warn("snapshot ignored: the log was trimmed behind its sequence", "seq", m.Seq)
		return nil
	case err != nil:
		return fmt.Errorf("prove that the snapshot at sequence %d is of this log: %w", m.Seq, err)
	case !at.Equal(m.Time) || id != m.ID:
		log.Warn("snapshot ignored: the log holds another event at its sequence", "seq", m.Seq)
		return nil
	}
	f.mu.Lock()
	f.state, f.at = s, m
	f.wake(true)
	f.mu.Unlock()
	f.saved = m.Seq
	log.Info("snapshot restored", "seq", m.Seq, "last", last)
	return nil
}

// stood is the id and time of the event at seq, also if that is the last one that the log
// was made to forget: what a snapshot at it still needs is there.
func (f *Follower[S]) stood(ctx context.Context, seq uint64) (id string, at time.Time, err error) {
	r, err := f.log.Get(ctx, seq)
	if !errors.Is(err, bus.ErrNotFound) {
		return r.Header.ID, r.Time, err
	}
	l, ok := f.log.(interface {
		Cut(context.Context) (bus.Cut, error)
	})
	if !ok {
		return "", time.Time{}, err
	}
	cut, cerr := l.Cut(ctx)
	switch {
	case cerr != nil:
		return "", time.Time{}, cerr
	case cut.Seq != seq:
		return "", time.Time{}, err
	}
	return cut.ID, cut.Time, nil
}

func (f *Follower[S]) load(want mark) (m mark, s S, err error) {
	if f.view.Decode != nil {
		return readEncoded(f.path(), want, f.view.Decode)
	}
	m, data, err := readSnapshot(f.path(), want)
	if err != nil {
		return m, s, err
	}
	s = f.view.New()
	if err := json.Unmarshal(data, &s); err != nil {
		return m, s, fmt.Errorf("its state does not decode: %w", err)
	}
	return m, s, nil
}

// snapshotBehind writes a snapshot while the fold goes on, one at a time, and for a
// tenth of the time at most.
func (f *Follower[S]) snapshotBehind() {
	if f.opt.SnapshotDir == "" || time.Now().UnixNano() < f.rest.Load() {
		return
	}
	f.rest.Store(math.MaxInt64)
	m, write := f.capture()
	f.saving.Go(func() {
		began := time.Now()
		f.report(m, write())
		f.rest.Store(time.Now().Add(9 * time.Since(began)).UnixNano())
	})
}

// snapshot is called by Run alone. A disk that refuses it is reported and tried again
// after as many events as usual: the state is safe in the log.
func (f *Follower[S]) snapshot() {
	if f.opt.SnapshotDir == "" {
		return
	}
	m, write := f.capture()
	f.report(m, write())
}

// capture takes the state as it is, to be written once.
func (f *Follower[S]) capture() (m mark, write func() error) {
	if f.view.Encode != nil {
		f.mu.Lock() // the writer's: a view need not take two copies at a time
		defer f.mu.Unlock()
		m = f.at
		f.saved = m.Seq
		state := f.view.Encode(f.state)
		return m, func() error { return writeEncoded(f.path(), m, state) }
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	m = f.at
	f.saved = m.Seq
	state, err := Canonical(f.state)
	return m, func() error {
		if err != nil {
			return err
		}
		return writeSnapshot(f.path(), m, state)
	}
}

func (f *Follower[S]) report(m mark, err error) {
	if err != nil {
		f.opt.Log.Warn("snapshot not written", "view", f.view.Name, "file", f.path(), "seq", m.Seq, "err", err)
	}
}

// Ready is closed once every event that was stored when Run began is folded.
func (f *Follower[S]) Ready() <-chan struct{} { return f.ready }

// Seq is the sequence last folded, 0 before the first.
func (f *Follower[S]) Seq() uint64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.at.Seq
}

// Changed is closed at the next fold of an event that concerns the view: one of its
// contexts and of its namespace. Take it before reading what you wait to change.
func (f *Follower[S]) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

// next is closed at the next fold of any event.
func (f *Follower[S]) next() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.moved == nil {
		f.moved = make(chan struct{})
	}
	return f.moved
}

// Wait returns once the event at seq is folded, or when ctx ends or Run has returned.
func (f *Follower[S]) Wait(ctx context.Context, seq uint64) error {
	for {
		moved, ended := f.next(), f.ended()
		if f.Seq() >= seq {
			return nil
		}
		if ended {
			f.mu.RLock()
			defer f.mu.RUnlock()
			return errors.Join(fmt.Errorf("view %s: stopped at sequence %d before %d: %w", f.view.Name, f.at.Seq, seq, context.Canceled), f.err)
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("view %s: waiting for sequence %d, at %d: %w", f.view.Name, seq, f.Seq(), ctx.Err())
		case <-f.done:
		}
	}
}

// ended says whether Run has returned.
func (f *Follower[S]) ended() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// Read calls fn with the state, which does not change meanwhile. Neither the state's
// maps nor its slices may be kept or changed; messages in it may be kept, not changed.
func (f *Follower[S]) Read(fn func(S)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	fn(f.state)
}

// Hash is the SHA-256 of the state's canonical JSON, and the sequence it stands at, not
// before the one at the time of the call. Two followers of one log at one sequence have the
// same, however they got there. Calls at the same time share one computation.
func (f *Follower[S]) Hash() (seq uint64, hash string) {
	asked := f.Seq()
	f.hashing.Lock()
	defer f.hashing.Unlock()
	if f.hashed.hash != "" && f.hashed.seq >= asked {
		return f.hashed.seq, f.hashed.hash
	}
	seq, write := f.canonical()
	sum := sha256.New()
	if err := write(sum); err != nil {
		return seq, "unhashable: " + err.Error()
	}
	f.hashed = standing{seq, hex.EncodeToString(sum.Sum(nil))}
	return f.hashed.seq, f.hashed.hash
}

// canonical takes the state as it is, and returns what writes its canonical JSON, to be
// called once. Where the view can freeze it, the fold is held up for that alone.
func (f *Follower[S]) canonical() (seq uint64, write func(io.Writer) error) {
	if f.view.Freeze != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.at.Seq, f.view.Freeze(f.state)
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	b, err := Canonical(f.state)
	return f.at.Seq, func(w io.Writer) error {
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	}
}

// View is what the follower folds, for replays of the same.
func (f *Follower[S]) View() View[S] { return f.view }
