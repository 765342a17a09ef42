//go:build !linux

package bench

import (
	"errors"
	"time"
)

// CPUTime needs Linux.
func CPUTime(int) (time.Duration, error) {
	return 0, errors.New("the CPU time of another process is read on Linux only")
}
