//go:build unix

package outbox

import (
	"errors"
	"net"
	"syscall"
)

// rawOf is nil for a connection whose bytes are not its socket's, such as TLS.
func rawOf(nc net.Conn) syscall.RawConn {
	t, ok := nc.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// writeNow writes what the socket takes without waiting.
func writeNow(raw syscall.RawConn, b []byte) (n int, err error) {
	gone := raw.Write(func(fd uintptr) bool {
		n, err = syscall.Write(int(fd), b)
		return true
	})
	switch {
	case gone != nil:
		return 0, gone
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		return 0, nil
	}
	return max(n, 0), err
}
