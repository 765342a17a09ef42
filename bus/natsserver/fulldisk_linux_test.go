package natsserver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/testenv/smalldisk"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// TestFullDisk fills the disk under writers and a follower: nobody is told that an
// event is stored which is not, the server's log names the fix, and once there is space
// the writers' next attempts, the follower, the leases and the letters simply go on.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	smalldisk.Mount(t, dir, "32m")
	told := &lines{}
	s, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(dir, "nats"), Log: slog.New(slog.NewTextHandler(told, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := jetstream.Connect(t.Context(), jetstream.Config{URL: s.URL(), BZID: "t"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 3*wait.Patience)
	defer cancel()

	w := &diskWriters{b: b, ctx: ctx, told: told, acked: map[string]uint64{}, enough: make(chan struct{}), stop: make(chan struct{})}
	for n := range 4 {
		w.wg.Go(func() { w.write(t, n) })
	}
	w.wait(t, "the first events", func() bool { acked, _ := w.now(); return acked > 100 })
	free := smalldisk.Fill(t, dir)
	w.wait(t, "the server to name the fix", func() bool { return strings.Contains(told.String(), "free space on the disk of "+dir) })
	w.wait(t, "a refusal that names the disk", func() bool { // others were late
		_, refused := w.now()
		return refused != nil && strings.Contains(refused.Error(), "disk")
	})
	free()
	w.healed.Store(true)
	select {
	case <-w.enough:
	case <-ctx.Done():
		_, refused := w.now()
		t.Fatalf("nothing is stored after space was freed; the last refusal: %v; the log:\n%s", refused, told)
	}
	close(w.stop)
	w.wg.Wait()
	w.kept(t)
	if _, err := b.DeadLetters().Park(ctx, bus.Parked{Reason: "r", By: "t", Stream: "s", StreamSeq: 1, Data: []byte("x")}); err != nil {
		t.Errorf("Park after the outage: %v", err)
	}
	if _, release, err := b.Leases().TryAcquire(ctx, "l", "h", time.Second); err != nil {
		t.Errorf("TryAcquire after the outage: %v", err)
	} else {
		release()
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "nats", "probe-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// diskWriters append until they are stopped, and send again what was refused.
type diskWriters struct {
	b            bus.Bus
	ctx          context.Context
	told         *lines // the server's log
	wg           sync.WaitGroup
	enough, stop chan struct{} // enough: closed after 200 events behind the outage
	after        atomic.Int64
	healed       atomic.Bool

	mu      sync.Mutex
	acked   map[string]uint64 // sequences by event id
	refused error             // the last one
}

func (w *diskWriters) now() (acked int, refused error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked), w.refused
}

// write is one writer's work.
func (w *diskWriters) write(t *testing.T, n int) {
	for i := 0; ; i++ {
		select {
		case <-w.stop:
			return
		default:
		}
		id := fmt.Sprintf("%d-%d-%s", n, i, strings.Repeat("x", 64))
		d := bus.Draft{
			Subject: model.Subject("t", fmt.Sprint("w", n)), Expect: bus.Any, Header: events.Header{ID: id},
			Event: &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: id}}},
		}
		for w.ctx.Err() == nil {
			err := w.append(d)
			if err == nil {
				break
			}
			if !bus.Retryable(err) && !errors.Is(err, bus.ErrFull) {
				t.Errorf("Append: %v", err)
				return
			}
		}
		if w.healed.Load() && w.after.Add(1) == 200 {
			close(w.enough)
		}
	}
}

// append tries once, and keeps the outcome.
func (w *diskWriters) append(d bus.Draft) error {
	short, end := context.WithTimeout(w.ctx, time.Second)
	defer end()
	seqs, err := w.b.Log().Append(short, d)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.refused = err
	} else {
		w.acked[d.Header.ID] = seqs[0]
	}
	return err
}

func (w *diskWriters) wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !cond() {
		select {
		case <-look.C:
		case <-w.ctx.Done():
			_, refused := w.now()
			t.Fatalf("waiting for %s: %v; the last refusal: %v; the log:\n%s", what, w.ctx.Err(), refused, w.told)
		}
	}
}

// kept checks that all that was acked stands in the log once, where its writer was told.
func (w *diskWriters) kept(t *testing.T) {
	t.Helper()
	last, err := w.b.Log().Last(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]uint64{}
	if err := w.b.Log().Follow(w.ctx, 1, last, func(r events.Recorded) error {
		if first, twice := seen[r.Header.ID]; twice {
			t.Errorf("%s stands at %d and at %d", r.Header.ID, first, r.Seq)
		}
		seen[r.Header.ID] = r.Seq
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for id, seq := range w.acked {
		if seen[id] != seq {
			t.Errorf("%s was acked at %d and stands at %d", id, seq, seen[id])
		}
	}
}

// lines is a log in memory.
type lines struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
