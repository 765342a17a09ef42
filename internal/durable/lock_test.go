package durable

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// holds fails unless the lock's file is there, or is not.
func holds(t *testing.T, path string, there bool) {
	t.Helper()
	if _, err := os.Stat(path); (err == nil) != there {
		t.Errorf("%s: %v", path, err)
	}
}

// A lock of one keeps everybody out, one of readers lets others in; the file goes with the last of them, and that of
// a killed process is nobody's.
func TestLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, nil, 0o600); err != nil { // of a process that was killed
		t.Fatal(err)
	}
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 3*lockRetry)
		t.Cleanup(cancel)
		return ctx
	}
	unlock, err := Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []func(context.Context, string) (func() error, error){Lock, RLock} {
		if _, err := other(short(), path); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beside the one who holds it: %v", err)
		}
	}
	if err := Unlock(path); err != nil {
		t.Error(err)
	}
	holds(t, path, true)
	waited := make(chan error, 1)
	go func() {
		second, err := Lock(t.Context(), path)
		if err == nil {
			err = second()
		}
		waited <- err
	}()
	if err := unlock(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-waited:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("who waited does not get it")
	}
	holds(t, path, false)

	first, err := RLock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := RLock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(short(), path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beside readers: %v", err)
	}
	if err := first(); err != nil {
		t.Error(err)
	}
	holds(t, path, true)
	if err := second(); err != nil {
		t.Error(err)
	}
	holds(t, path, false)
	if err := Unlock(path); err != nil {
		t.Errorf("nothing to unlock: %v", err)
	}
	holds(t, path, false)
}

// What another has made anew at the path is not removed by who locked the file before it.
func TestALockMadeAnewStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	late := flock.New(path, flock.SetFlag(os.O_RDONLY))
	if ok, err := late.TryLock(); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	done, err := RLock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(removeHeld(late), late.Close()); err != nil {
		t.Fatal(err)
	}
	holds(t, path, true)
	if err := done(); err != nil {
		t.Error(err)
	}
	holds(t, path, false)
}
