//go:build !linux

package bench

import (
	"errors"
	"time"
)

// cpuTime needs Linux.
func cpuTime(int) (time.Duration, error) {
	return 0, errors.New("the CPU time of another process is read on Linux only")
}
