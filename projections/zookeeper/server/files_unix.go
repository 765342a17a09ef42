//go:build unix

package server

import (
	"os"
	"syscall"
)

// files is how many files the process has open, and may have; -1: it cannot be told.
func files() (open, limit int64) {
	open, limit = -1, -1
	if dir, err := os.Open("/proc/self/fd"); err == nil {
		if names, err := dir.Readdirnames(-1); err == nil {
			open = int64(len(names)) - 1 // the folder itself
		}
		_ = dir.Close() // read only
	}
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) == nil {
		limit = int64(l.Cur)
	}
	return open, limit
}
