package leaks

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// tests are a package's: they start what they start, and end with that code.
type tests func() int

func (f tests) Run() int { return f() }

// Who leaves late is waited for, who stays is told of; tests that failed are not looked at.
func TestGoroutinesThatOutliveTheTests(t *testing.T) {
	stay := make(chan struct{})
	defer close(stay)
	for name, tc := range map[string]struct {
		tests    tests
		patience time.Duration
		code     int
		says     string
	}{
		"none":        {func() int { return 0 }, 0, 0, ""},
		"one is late": {func() int { go time.Sleep(2 * time.Second); return 0 }, wait.Patience, 0, ""},
		"one stays":   {func() int { go func() { <-stay }(); return 0 }, time.Second, 1, "leaks_test.go"},
		"they failed": {func() int { go func() { <-stay }(); return 3 }, 0, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			code := run(tc.tests, &said, tc.patience, goleak.IgnoreCurrent())
			if code != tc.code || !strings.Contains(said.String(), tc.says) || (said.Len() > 0) != (tc.says != "") {
				t.Errorf("exit code %d, want %d; it says %q", code, tc.code, said.String())
			}
		})
	}
}
