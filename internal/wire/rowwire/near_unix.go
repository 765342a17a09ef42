//go:build unix

package rowwire

import (
	"errors"
	"os"
	"syscall"
)

// own says that a file is this user's.
func own(st os.FileInfo) bool {
	s, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Getuid()
}

// refused says that nobody listens on a socket.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
