// Package leaks fails a package's tests when goroutines outlive them. Those that are on their
// way out are waited for: on a busy machine that may take longer than goleak's half second.
package leaks

import (
	"fmt"
	"io"
	"os"
	"time"

	"go.uber.org/goleak"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

const pause = 100 * time.Millisecond

// Main runs the tests of a package and ends the process: TestMain's only call.
func Main(m goleak.TestingM, options ...goleak.Option) {
	os.Exit(run(m, os.Stderr, wait.Patience, options...))
}

// run is the process's exit code.
func run(m goleak.TestingM, stderr io.Writer, patience time.Duration, options ...goleak.Option) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		err := goleak.Find(options...)
		if err == nil {
			return 0
		}
		if time.Now().After(deadline) {
			_, _ = fmt.Fprintf(stderr, "%v after the tests: %v\n", patience, err)
			return 1
		}
	}
}
