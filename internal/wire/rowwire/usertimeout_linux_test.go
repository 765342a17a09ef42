package rowwire

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestConnectionsNoticeAVanishedHost(t *testing.T) {
	addr, _ := serve(t, "127.0.0.1:0", echo{dim: 1}, Options{})
	raw, err := dial(t, addr).nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for name, o := range map[string]struct{ level, opt, want int }{
			"user timeout, ms": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds())},
			"keepalive":        {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			"idle, s":          {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 10},
			"interval, s":      {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 5},
			"probes":           {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
		} {
			if got, err := unix.GetsockoptInt(int(fd), o.level, o.opt); err != nil || got != o.want {
				t.Errorf("%s is %d, %v; want %d", name, got, err, o.want)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
