package zkload

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// arrivals waits at many connections at once, without reading them, so that what the
// client itself takes to read does not count as the server's.
type arrivals struct {
	ep  int
	n   int
	buf []unix.EpollEvent
}

// newArrivals watches conns; each counts once in every wait.
func newArrivals(conns []net.Conn) (_ *arrivals, err error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("wait at %d connections: %w", len(conns), err)
	}
	a := &arrivals{ep: ep, n: len(conns), buf: make([]unix.EpollEvent, len(conns)+1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	for _, c := range conns {
		t, ok := c.(*net.TCPConn)
		if !ok {
			return nil, fmt.Errorf("wait at a %T: only TCP connections have a descriptor", c)
		}
		raw, err := t.SyscallConn()
		if err != nil {
			return nil, err
		}
		var add error
		if err := raw.Control(func(fd uintptr) {
			add = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)})
		}); err != nil || add != nil {
			return nil, errors.Join(err, add)
		}
	}
	return a, nil
}

// forget drops what has arrived before.
func (a *arrivals) forget() error {
	for {
		n, err := unix.EpollWait(a.ep, a.buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
	}
}

// wait returns when something has arrived at every connection since forget.
func (a *arrivals) wait(until time.Time) (time.Time, error) {
	seen := make(map[int32]struct{}, a.n)
	for {
		left := time.Until(until)
		if left <= 0 {
			return time.Time{}, fmt.Errorf("%d of %d sessions have heard nothing", a.n-len(seen), a.n)
		}
		n, err := unix.EpollWait(a.ep, a.buf, int(left.Milliseconds())+1)
		at := time.Now()
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return at, err
		}
		for _, e := range a.buf[:n] {
			seen[e.Fd] = struct{}{}
		}
		if len(seen) == a.n {
			return at, nil
		}
	}
}

func (a *arrivals) close() error { return unix.Close(a.ep) }
