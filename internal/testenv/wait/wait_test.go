package wait_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// failing is a test that notes how it fails.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	panic(f)
}

// fails runs a wait that is to fail, and returns what it says.
func fails(t *testing.T, run func(testing.TB)) string {
	t.Helper()
	f := &failing{TB: t}
	func() {
		defer func() { _ = recover() }()
		run(f)
	}()
	return f.said
}

func TestWaitsUntilItIsSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		wait.For(t, "a second", func() bool { return time.Since(begin) >= time.Second })
		wait.Until(t, "another", func() error {
			if time.Since(begin) < 2*time.Second {
				return errors.New("too early")
			}
			return nil
		})
		if took := time.Since(begin); took > 2*time.Second+100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		ch := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(ch) })
		wait.Closed(t, "the channel", ch)
	})
}

func TestSaysWhatItSawLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		for says, run := range map[string]func(testing.TB){
			"seven: state of ": func(t testing.TB) {
				wait.Seen(t, "seven", func() (string, bool) { n++; return fmt.Sprint("state of ", n), false })
			},
			"it: away": func(t testing.TB) { wait.Until(t, "it", func() error { return errors.New("away") }) },
			"true: ":   func(t testing.TB) { wait.For(t, "true", func() bool { return false }) },
			"the end":  func(t testing.TB) { wait.Closed(t, "the end", make(chan struct{})) },
		} {
			begin := time.Now()
			said := fails(t, run)
			if !strings.Contains(said, says) || time.Since(begin) < wait.Patience {
				t.Errorf("%q after %v, want %q", said, time.Since(begin), says)
			}
		}
		if n < 100 {
			t.Errorf("it was looked at %d times", n)
		}
	})
}
