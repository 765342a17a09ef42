package rowwire

import (
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unacknowledged is how long sent bytes may stay without acknowledgement.
const unacknowledged = 20 * time.Second

// userTimeout bounds the time in which a connection with bytes under way is given up;
// without it, that is a quarter of an hour.
func userTimeout(network, _ string, raw syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var err error
	if control := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds()))
	}); control != nil {
		return control
	}
	return err
}
