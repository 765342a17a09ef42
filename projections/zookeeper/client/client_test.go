package client

import (
	"net"
	"testing"
	"time"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// FuzzServer plays a server that says anything: the client ends with an error or with
// what was said, and no word of it costs more than it is long.
func FuzzServer(f *testing.F) {
	hello := wire.Frame((&wire.ConnectResponse{TimeoutMS: 1000, SessionID: 1, Password: make([]byte, 16)}).Encode)
	reply := wire.Frame((&wire.ReplyHeader{Xid: 1, Zxid: 5}).Encode, func(w *wire.Writer) { w.String("/a") })
	f.Add([]byte{})
	f.Add(hello)
	f.Add(append(hello[:len(hello):len(hello)], reply...))
	f.Add(append(hello[:len(hello):len(hello)], 0xff, 0xff, 0xff, 0xff))
	f.Add(append(hello[:len(hello):len(hello)], 0x03, 0xff, 0xff, 0xff, 1))
	f.Add(append(hello[:len(hello):len(hello)], 0, 0, 0, 3, 1, 2, 3))
	f.Add([]byte{0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 3, 232, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, said []byte) {
		here, there := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer there.Close()
			if _, err := wire.ReadFrame(there, nil, 1<<10); err == nil { // the client's greeting
				_, _ = there.Write(said) // cut short when the client has had enough
			}
		}()
		c, err := Open(here, wire.ConnectRequest{TimeoutMS: 1000}, 10*time.Second)
		left := len(said)
		for err == nil {
			var r *wire.Reader
			if _, r, err = c.Next(); err == nil {
				if left -= 4 + r.Len(); left < 0 {
					t.Fatalf("more was heard than the %d bytes that were said", len(said))
				}
				_ = c.More()
				(&wire.WatcherEvent{}).Decode(r)
			}
		}
		_ = here.Close()
		<-done
		if c != nil && cap(c.frame) > max(64<<10, 2*len(said)) {
			t.Fatalf("%d bytes took room for %d", len(said), cap(c.frame))
		}
	})
}
