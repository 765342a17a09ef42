package follow_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// tally counts events, and encodes itself as that number.
type tally struct {
	N int `json:"n"`
}

func tallies(folds *atomic.Int64, hold <-chan struct{}) follow.View[tally] {
	return follow.View[tally]{
		Name: "tally", Version: 1, New: func() tally { return tally{} },
		Fold: func(s tally, _ events.Recorded) tally { folds.Add(1); s.N++; return s },
		Encode: func(s tally) func(io.Writer) error {
			return func(w io.Writer) error {
				if hold != nil {
					<-hold
				}
				_, err := io.WriteString(w, strconv.Itoa(s.N))
				return err
			}
		},
		Decode: func(r io.Reader) (tally, error) {
			b, err := io.ReadAll(r)
			if err != nil {
				return tally{}, err
			}
			n, err := strconv.Atoi(string(b))
			return tally{n}, err
		},
	}
}

// until follows the log to sequence seq and stops.
func until(t *testing.T, b bus.Bus, v follow.View[tally], dir string, seq uint64) int {
	t.Helper()
	f := follow.New(b.Log(), v, follow.Options{SnapshotDir: dir, SnapshotEvery: 10})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	limit, stop := context.WithTimeout(t.Context(), wait.Patience)
	defer stop()
	if err := f.Wait(limit, seq); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	n := 0
	f.Read(func(s tally) { n = s.N })
	return n
}

func TestEncodedSnapshots(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	append := func(n int) {
		for range n {
			if _, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join("b", "model", "m"), Expect: bus.Any, Event: &model.Event{
				Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: "r"}}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	append(100)
	dir := t.TempDir()
	file := filepath.Join(dir, "tally.snapshot")
	var folds atomic.Int64
	run := func(seq uint64, want int, folded int64) {
		t.Helper()
		folds.Store(0)
		if n := until(t, b, tallies(&folds, nil), dir, seq); n != want || folds.Load() != folded {
			t.Errorf("%d events counted, %d of them folded now; want %d and %d", n, folds.Load(), want, folded)
		}
	}
	run(100, 100, 100)
	append(20)
	run(120, 120, 20) // from the snapshot
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func([]byte) []byte{
		"cut short":   func(b []byte) []byte { return b[:len(b)-1] },
		"other state": func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"no state":    func(b []byte) []byte { return b[:bytes.IndexByte(b, '\n')+1] },
		"no line":     func(b []byte) []byte { return b[:10] },
		"empty":       func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, damage(bytes.Clone(whole)), 0o644); err != nil {
				t.Fatal(err)
			}
			run(120, 120, 120)
		})
	}
}

// The fold goes on while a snapshot is being written, and the file holds the state as it
// was when it began.
func TestEncodedSnapshotBehind(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	for range 50 {
		if _, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join("b", "model", "m"), Expect: bus.Any, Event: &model.Event{
			Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: "r"}}}}); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	hold := make(chan struct{})
	var folds atomic.Int64
	f := follow.New(b.Log(), tallies(&folds, hold), follow.Options{SnapshotDir: dir, SnapshotEvery: 10})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	limit, stop := context.WithTimeout(t.Context(), wait.Patience)
	defer stop()
	if err := f.Wait(limit, 50); err != nil { // it would wait for ever if a snapshot held it up
		t.Fatal(err)
	}
	hold <- struct{}{} // the first one, of sequence 10
	file := filepath.Join(dir, "tally.snapshot")
	var data []byte
	wait.Until(t, "the first snapshot", func() (err error) {
		data, err = os.ReadFile(file)
		return err
	})
	if !bytes.HasSuffix(data, []byte("\n10")) {
		t.Errorf("the first snapshot is %q, want the state of sequence 10", data)
	}
	cancel()
	close(hold) // the last one
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(file); err != nil || !bytes.HasSuffix(data, []byte("\n50")) {
		t.Errorf("the last snapshot is %q, %v", data, err)
	}
}
