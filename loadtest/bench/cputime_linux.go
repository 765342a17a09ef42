package bench

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is what all threads of a process have taken so far, those that have ended too,
// to the nanosecond. The clock's number is made as clock_getcpuclockid makes it.
func CPUTime(pid int) (time.Duration, error) {
	const scheduled = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &ts); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}
