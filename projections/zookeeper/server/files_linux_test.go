package server

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// The files that are open are counted without the one that counting takes.
func TestFiles(t *testing.T) {
	wait.Seen(t, "as many files as there are descriptors", func() (string, bool) { // other tests may open some meanwhile
		var want int64
		for fd := range 4096 {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
				want++
			}
		}
		open, limit := files()
		return fmt.Sprintf("%d of %d, want %d", open, limit, want), open == want && limit >= open
	})
}
