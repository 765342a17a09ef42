package host

import (
	"os"
	"runtime"
	"sync"
)

// embeddedLogs is how many logs a process may hold, NATS's and Kafka's, each of which waits for its disk.
const embeddedLogs = 2

var spare struct {
	sync.Mutex
	stacks int // that run
}

// spareProcessors lets Go run as many goroutines more at once as there are logs in this process, until back is called.
// An fsync keeps the processor of its goroutine, to the scheduler's knowledge, until the scheduler's monitor
// takes it away, which may be ten milliseconds later: where there are two and both logs sync, nothing else runs meanwhile.
// An operator's GOMAXPROCS comes first. What computes keeps to kernels/par's Processors.
func spareProcessors() (back func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	spare.Lock()
	defer spare.Unlock()
	if spare.stacks == 0 {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + embeddedLogs)
	}
	spare.stacks++
	return sync.OnceFunc(func() {
		spare.Lock()
		defer spare.Unlock()
		if spare.stacks--; spare.stacks == 0 {
			runtime.SetDefaultGOMAXPROCS() // and Go follows the quota again
		}
	})
}
