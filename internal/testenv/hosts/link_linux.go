package hosts

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Link is how poor a link is, either way. The zero value is a good one.
type Link struct {
	Delay time.Duration // of each packet
	Loss  float64       // share of the packets that never arrive
}

// Link makes the machine's link as poor as that, until Heal. Packets pass through this process
// meanwhile: kernels for virtual machines and containers often come without netem.
func (h *Host) Link(l Link) {
	h.t.Helper()
	if h.relay == nil {
		near, far := h.port+"-near", h.port+"-far"
		must(h.t, "-n", h.sw, "link", "add", near, "type", "veth", "peer", "name", far)
		must(h.t, "-n", h.sw, "link", "set", far, "master", "bridge", "up")
		must(h.t, "-n", h.sw, "link", "set", near, "up")
		must(h.t, "-n", h.sw, "link", "set", h.port, "nomaster")
		r, err := newRelay(h.sw, h.port, near)
		if err != nil {
			h.t.Fatalf("a poor link takes packet sockets: %v", err)
		}
		h.relay = r
		h.t.Cleanup(h.unrelay)
	}
	h.relay.link.Store(&l)
}

func (h *Host) unrelay() {
	h.t.Helper()
	if h.relay == nil {
		return
	}
	h.relay.close()
	h.relay = nil
	must(h.t, "-n", h.sw, "link", "del", h.port+"-near")
}

const (
	// maxPacket bounds what a socket hands out: a segment that the kernel has yet to cut into packets.
	maxPacket = 70 << 10
	// queue bounds the packets under way; a full one loses the next.
	queue = 8192
)

// relay carries packets between two devices of a namespace.
type relay struct {
	ends    [2]*os.File
	link    atomic.Pointer[Link]
	running sync.WaitGroup
}

func newRelay(namespace string, devices ...string) (*relay, error) {
	r := new(relay)
	err := within(namespace, func() (err error) {
		for i, device := range devices {
			if r.ends[i], err = openPackets(device); err != nil {
				return fmt.Errorf("open %s: %w", device, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.link.Store(new(Link))
	r.running.Go(func() { r.carry(r.ends[0], r.ends[1]) })
	r.running.Go(func() { r.carry(r.ends[1], r.ends[0]) })
	return r, nil
}

// within calls f on a thread that is in a namespace for as long.
func within(namespace string, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	there, err := os.Open("/run/netns/" + namespace)
	if err != nil {
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", namespace, err)
	}
	err = f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(fmt.Sprintf("the thread does not leave %s: %v", namespace, back))
	}
	return err
}

// openPackets reads and writes whole packets of a device of this thread's namespace, each behind what
// the kernel knows of it: checksums that are yet to be made, segments that are yet to be cut.
func openPackets(device string) (*os.File, error) {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return nil, err
	}
	const all = unix.ETH_P_ALL
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), device)
	for _, option := range [...]struct{ level, name, value int }{
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1}, {unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16 << 20}, {unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 16 << 20},
	} {
		if err := unix.SetsockoptInt(fd, option.level, option.name, option.value); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	var order [2]byte
	binary.BigEndian.PutUint16(order[:], all)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16(order[:]), Ifindex: dev.Index}); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// packet is one on its way.
type packet struct {
	b   []byte
	due time.Time
}

// carry carries packets one way until the relay is closed.
func (r *relay) carry(from, to *os.File) {
	way := make(chan packet, queue)
	r.running.Go(func() {
		defer close(way)
		b := make([]byte, maxPacket)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			l := r.link.Load()
			if rand.Float64() < l.Loss {
				continue
			}
			select {
			case way <- packet{slices.Clone(b[:n]), time.Now().Add(l.Delay)}:
			default:
			}
		}
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for p := range way {
		if wait := time.Until(p.due); wait > 0 {
			timer.Reset(wait)
			<-timer.C
		}
		_, _ = to.Write(p.b) // what does not pass is lost, as on a link
	}
}

func (r *relay) close() {
	for _, end := range r.ends {
		_ = end.Close() // nothing is written any more
	}
	r.running.Wait()
}
