package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// replicated is a log on three servers with writers and followers on it.
type replicated struct {
	*natstest.Cluster
	ctx   context.Context
	b     *jetstream.Bus
	acks  atomic.Int64 // events acked
	retry atomic.Int64 // calls without an answer

	mu    sync.Mutex
	acked map[uint64]string
	moved chan struct{} // closed and replaced at each ack
}

// write appends n commands of writer w, each until it is acked, and holds sequences against
// guards. Every third writer appends one event at a time, guarded; every third whatever comes;
// every third three events that belong together.
func (r *replicated) write(w, n int) error {
	var last uint64
	aggregate := fmt.Sprint("w", w)
	for i := range n {
		id := fmt.Sprintf("%d-%d", w, i)
		drafts := []bus.Draft{draft(aggregate, id, bus.Any)}
		switch w % 3 {
		case 1:
			drafts[0].Expect = last
		case 2:
			drafts = []bus.Draft{draft(aggregate, id, last), draft(aggregate, id+"b", last), draft(aggregate+"x", id+"c", bus.Any)}
		}
		seqs, err := r.append(drafts, w%2 == 0)
		if err != nil {
			return fmt.Errorf("writer %d, command %d: %w", w, i, err)
		}
		r.mu.Lock()
		for j, seq := range seqs {
			if seq != seqs[0]+uint64(j) {
				err = fmt.Errorf("writer %d: a command stands at %v", w, seqs)
			}
			if other, ok := r.acked[seq]; ok {
				err = fmt.Errorf("%s and %s were acked at %d", other, drafts[j].Header.ID, seq)
			}
			r.acked[seq] = drafts[j].Header.ID
		}
		close(r.moved)
		r.moved = make(chan struct{})
		r.mu.Unlock()
		if err != nil {
			return err
		}
		if last = seqs[0]; w%3 == 2 {
			last = seqs[1]
		}
		r.acks.Add(int64(len(seqs)))
	}
	return nil
}

// append appends until there is an ack, by callers that wait or by such as ask again, and wait
// longer each time: beside a busy machine no ack may come in the first one's time.
func (r *replicated) append(drafts []bus.Draft, patient bool) ([]uint64, error) {
	for long := 300 * time.Millisecond; ; long *= 2 {
		ctx, cancel := r.ctx, context.CancelFunc(func() {})
		if !patient {
			ctx, cancel = context.WithTimeout(r.ctx, long)
		}
		seqs, err := r.b.Log().Append(ctx, drafts...)
		cancel()
		if err == nil || !bus.Retryable(err) || r.ctx.Err() != nil {
			return seqs, err
		}
		r.retry.Add(1)
	}
}

// until waits for so many acks.
func (r *replicated) until(t *testing.T, n int64) {
	t.Helper()
	for r.acks.Load() < n {
		r.mu.Lock()
		moved := r.moved
		r.mu.Unlock()
		select {
		case <-moved:
		case <-r.ctx.Done():
			t.Fatalf("%d of %d events are acked: %v", r.acks.Load(), n, r.ctx.Err())
		}
	}
}

// inOrder fails at the first event that does not follow the one before it.
func inOrder(seen *uint64) func(events.Recorded) error {
	return func(r events.Recorded) error {
		if r.Seq != *seen+1 {
			return fmt.Errorf("%d follows %d", r.Seq, *seen)
		}
		*seen = r.Seq
		return r.Err
	}
}

// The leader of a replicated log is killed and has to step down while callers write: what was
// acked is there once and where its ack says, commands are whole, guards hold, and whoever
// follows has every event in order.
func TestLeaderChangesUnderWriters(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	r := &replicated{Cluster: natstest.NewCluster(t, 3), ctx: ctx, acked: map[uint64]string{}, moved: make(chan struct{})}
	r.b = connect(t, jetstream.Config{URL: r.URL(), Replicas: 3})
	const writers, each = 12, 50
	const total = writers / 3 * each * 5 // events

	followed := make(chan error, 2)
	go func() { // the tail, without an end
		var seen uint64
		stop := errors.New("all are there")
		pass := inOrder(&seen)
		err := r.b.Log().Follow(ctx, 1, 0, func(e events.Recorded) error {
			if err := pass(e); err != nil || e.Seq < total {
				return err
			}
			return stop
		})
		if errors.Is(err, stop) {
			err = nil
		}
		followed <- err
	}()
	other := connect(t, jetstream.Config{URL: r.URL()})
	go func() { // a reading of its own, up to a sequence that is not there yet
		var seen uint64
		err := other.Log().Follow(ctx, 1, total, inOrder(&seen))
		if err == nil && seen != total {
			err = fmt.Errorf("the reading up to %d ended at %d", total, seen)
		}
		followed <- err
	}()
	failed := make(chan error, writers)
	for w := range writers {
		go func() { failed <- r.write(w, each) }()
	}

	r.until(t, total/8)
	r.StepDown(t, "MONOLITH")
	r.until(t, total/4)
	killed := r.Leader(t, "MONOLITH")
	r.Kill(killed)
	r.until(t, total/2)
	r.Start(t, killed)
	r.StepDown(t, "MONOLITH")
	r.Current(t)
	r.until(t, total*3/4)
	killed = r.Leader(t, "MONOLITH")
	r.Kill(killed)
	for range writers {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	for range cap(followed) {
		if err := <-followed; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d writes were tried again", r.retry.Load()) // none where each election was over before an append gave up
	if len(r.acked) != total {
		t.Errorf("%d of %d events were acked", len(r.acked), total)
	}
	r.Start(t, killed)
	checkLog(t, r.b, r.acked)
	if last, err := r.b.Log().Last(ctx); err != nil || last != total {
		t.Errorf("the log ends at %d, %v; %d events were written", last, err, total)
	}
}

// A lease that lasts longer than an election outlives the leaders of its bucket; a shorter
// one is lost and taken by the next, with a higher epoch.
func TestLeasesOutliveTheirLeader(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	c := natstest.NewCluster(t, 3)
	b := connect(t, jetstream.Config{URL: c.URL(), Replicas: 3})
	long, release, err := b.Leases().Acquire(ctx, "long", "one", wait.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	brief, drop, err := b.Leases().Acquire(ctx, "brief", "one", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer drop()
	killed := c.Leader(t, "KV_MONOLITH_LEASES")
	c.Kill(killed)
	again, drop, err := b.Leases().Acquire(ctx, "brief", "two", time.Second)
	if err != nil || again.Epoch <= brief.Epoch {
		t.Fatalf("epoch %d follows %d, %v", again.Epoch, brief.Epoch, err)
	}
	defer drop()
	wait.Closed(t, "the former holder to know it", brief.Lost)
	c.Start(t, killed)
	c.StepDown(t, "KV_MONOLITH_LEASES")
	if _, _, err := b.Leases().TryAcquire(ctx, "long", "two", time.Second); !errors.Is(err, bus.ErrConflict) {
		t.Errorf("TryAcquire of a lease that is held = %v", err)
	}
	select {
	case <-long.Lost:
		t.Error("a lease that lasts longer did not outlive the election")
	default:
	}
	release()
	next, release, err := b.Leases().Acquire(ctx, "long", "two", time.Second)
	if err != nil || next.Epoch <= long.Epoch {
		t.Fatalf("epoch %d follows %d, %v", next.Epoch, long.Epoch, err)
	}
	release()
}

// Letters are parked once, deltas are followed in order, whatever becomes of the leaders of
// their streams.
func TestLettersAndDeltasOutliveTheirLeaders(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	c := natstest.NewCluster(t, 3)
	b := connect(t, jetstream.Config{URL: c.URL(), Replicas: 3})
	const n = 60
	subject := bus.DeltaSubject("bustest", "job", "0")
	followed := make(chan error, 1)
	go func() {
		i := byte(0)
		followed <- b.Deltas().Follow(ctx, 1, 2*n, []string{subject}, func(d bus.StoredDelta) error {
			if d.Data[0] != i {
				return fmt.Errorf("delta %d comes where %d is due", d.Data[0], i)
			}
			i++
			return nil
		})
	}()
	park := func(i int) (seq uint64, err error) {
		for long := time.Second; ; long *= 2 {
			short, end := context.WithTimeout(ctx, long)
			seq, err = b.DeadLetters().Park(short, bus.Parked{By: "me", Reason: "test", Stream: "MONOLITH", StreamSeq: uint64(i + 1), Subject: "s"})
			end()
			if err == nil || !bus.Retryable(err) || ctx.Err() != nil {
				return seq, err
			}
		}
	}
	var seqs []uint64
	var last uint64
	killed := -1
	for i := range n {
		switch i {
		case n / 4:
			c.StepDown(t, "MONOLITH_DLQ")
			c.StepDown(t, "MONOLITH_SYNC")
		case n / 3:
			killed = c.Leader(t, "MONOLITH_DLQ")
			c.Kill(killed)
		case n / 2:
			c.Start(t, killed)
			c.Current(t)
		case n * 2 / 3:
			killed = c.Leader(t, "MONOLITH_SYNC")
			c.Kill(killed)
		}
		seq, err := park(i)
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, seq)
		if last, err = b.Deltas().Publish(ctx, bus.DeltaDraft{Subject: subject, ID: fmt.Sprint("d", i), Expect: last, Data: []byte{byte(i)}}); err != nil {
			t.Fatal(err)
		}
		if _, err = b.Deltas().Publish(ctx, bus.DeltaDraft{Subject: subject + "x", Expect: bus.Any, Data: []byte{byte(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-followed; err != nil {
		t.Error(err)
	}
	for i, seq := range seqs {
		if again, err := park(i); err != nil || again != seq {
			t.Errorf("letter %d stands at %d and, parked again, at %d, %v", i, seq, again, err)
		}
	}
	letters, err := b.DeadLetters().List(ctx)
	if err != nil || len(letters) != n {
		t.Errorf("%d letters of %d, %v", len(letters), n, err)
	}
	if !slices.IsSorted(seqs) || len(slices.Compact(seqs)) != n {
		t.Errorf("letters stand at %v", seqs)
	}
}
