//go:build !unix

package outbox

import (
	"net"
	"syscall"
)

// rawOf is nil: no socket is asked whether it would wait.
func rawOf(net.Conn) syscall.RawConn { return nil }

func writeNow(syscall.RawConn, []byte) (int, error) { return 0, nil }
