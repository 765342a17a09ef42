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
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()

	var mu sync.Mutex
	acked := map[string]uint64{}
	var refused error
	enough := make(chan struct{}) // after the outage
	stop := make(chan struct{})
	var after atomic.Int64
	var healed atomic.Bool
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("%d-%d-%s", w, i, strings.Repeat("x", 64))
				d := bus.Draft{
					Subject: model.Subject("t", fmt.Sprint("w", w)), Expect: bus.Any, Header: events.Header{ID: id},
					Event: &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: id}}},
				}
				for ctx.Err() == nil {
					short, end := context.WithTimeout(ctx, time.Second)
					seqs, err := b.Log().Append(short, d)
					end()
					mu.Lock()
					if err != nil {
						refused = err
					} else {
						acked[d.Header.ID] = seqs[0]
					}
					mu.Unlock()
					if err == nil {
						break
					}
					if !bus.Retryable(err) && !errors.Is(err, bus.ErrFull) {
						t.Errorf("Append: %v", err)
						return
					}
				}
				if healed.Load() && after.Add(1) == 200 {
					close(enough)
				}
			}
		})
	}
	ackedNow := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acked)
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	wait := func(what string, cond func() bool) {
		t.Helper()
		for !cond() {
			select {
			case <-look.C:
			case <-ctx.Done():
				t.Fatalf("waiting for %s: %v; the last refusal: %v; the log:\n%s", what, ctx.Err(), refused, told)
			}
		}
	}
	wait("the first events", func() bool { return ackedNow() > 100 })
	free := smalldisk.Fill(t, dir)
	wait("the server to name the fix", func() bool { return strings.Contains(told.String(), "free space on the disk of "+dir) })
	wait("a refusal", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return refused != nil
	})
	mu.Lock()
	if !strings.Contains(refused.Error(), "disk") {
		t.Errorf("an append on a full disk says %v, which names no disk", refused)
	}
	mu.Unlock()
	free()
	healed.Store(true)
	select {
	case <-enough:
	case <-ctx.Done():
		t.Fatalf("nothing is stored after space was freed; the last refusal: %v; the log:\n%s", refused, told)
	}
	close(stop)
	wg.Wait()

	last, err := b.Log().Last(ctx)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]uint64{}
	if err := b.Log().Follow(ctx, 1, last, func(r events.Recorded) error {
		if first, twice := seen[r.Header.ID]; twice {
			t.Errorf("%s stands at %d and at %d", r.Header.ID, first, r.Seq)
		}
		seen[r.Header.ID] = r.Seq
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for id, seq := range acked {
		if seen[id] != seq {
			t.Errorf("%s was acked at %d and stands at %d", id, seq, seen[id])
		}
	}
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
