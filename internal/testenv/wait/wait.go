// Package wait is how tests wait for what other goroutines and processes do, where nothing
// tells them of it. What is waited for is asked after again and again, so that a wait takes
// no longer than what it waits for, however long [Patience] is.
package wait

import (
	"errors"
	"testing"
	"time"
)

// Patience is after how long a wait fails its test: longer than the disk of a busy machine
// stands still.
const Patience = 2 * time.Minute

const (
	firstPause = time.Millisecond
	lastPause  = 25 * time.Millisecond
)

var errNotYet = errors.New("not yet")

// Until waits until try returns nil; its last error is told if that takes too long.
func Until(t testing.TB, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s: %v", Patience, what, err)
		}
		time.Sleep(pause)
	}
}

// For waits until is returns true.
func For(t testing.TB, what string, is func() bool) {
	t.Helper()
	Until(t, what, func() error {
		if is() {
			return nil
		}
		return errNotYet
	})
}

// Seen is For, and tells what look saw last.
func Seen(t testing.TB, what string, look func() (last string, ok bool)) {
	t.Helper()
	Until(t, what, func() error {
		if last, ok := look(); !ok {
			return errors.New(last)
		}
		return nil
	})
}

// Closed waits until ch is closed, or hands something out.
func Closed[T any](t testing.TB, what string, ch <-chan T) {
	t.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	select {
	case <-ch:
	case <-late.C:
		t.Fatalf("waited %v for %s", Patience, what)
	}
}
