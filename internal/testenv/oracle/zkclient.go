package oracle

import (
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

type silent struct{}

func (silent) Printf(string, ...any) {}

// ZKClient is the stock Go client with a session at addr. It closes with the test. dial
// may be nil.
func ZKClient(t testing.TB, addr string, dial zk.Dialer) *zk.Conn {
	t.Helper()
	if dial == nil {
		dial = net.DialTimeout
	}
	c, ev, err := zk.Connect([]string{addr}, wait.Patience, zk.WithLogger(silent{}), zk.WithDialer(dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	timeout := time.After(wait.Patience)
	for session := false; !session; {
		select {
		case e := <-ev:
			session = e.State == zk.StateHasSession
		case <-timeout:
			t.Fatalf("the stock client gets no session at %s", addr)
		}
	}
	settled(t)
	return c
}

// settled waits until the loops of all stock clients have seen that there are no watches
// to set again. Before that, a reply to a request that sets one races inside the client.
func settled(t testing.TB) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for deadline := time.Now().Add(wait.Patience); ; runtime.Gosched() {
		n := runtime.Stack(buf, true)
		if n == len(buf) {
			buf = make([]byte, 2*len(buf)) // some goroutines were cut off
			continue
		}
		loops, waiting := 0, 0
		for _, stack := range strings.Split(string(buf[:n]), "\n\n") {
			if strings.Contains(stack, "zk.(*Conn).loop(") {
				loops++
				if strings.Contains(stack, "sync.(*WaitGroup).Wait(") {
					waiting++
				}
			}
		}
		if loops > 0 && loops == waiting {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the stock client does not settle")
		}
	}
}
