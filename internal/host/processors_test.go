package host

import (
	"runtime"
	"testing"
)

// Stacks of one process share the processors that are spared for the logs, and the last one gives them back.
func TestSpareProcessors(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	before := runtime.GOMAXPROCS(0)
	one, other := spareProcessors(), spareProcessors()
	if got := runtime.GOMAXPROCS(0); got != before+embeddedLogs {
		t.Errorf("%d processors with two stacks, not %d", got, before+embeddedLogs)
	}
	one()
	one()
	if got := runtime.GOMAXPROCS(0); got != before+embeddedLogs {
		t.Errorf("%d processors while a stack runs, not %d", got, before+embeddedLogs)
	}
	other()
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("%d processors behind the last stack, not %d", got, before)
	}
	t.Setenv("GOMAXPROCS", "3")
	spareProcessors()()
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("%d processors, against the operator's word", got)
	}
}
