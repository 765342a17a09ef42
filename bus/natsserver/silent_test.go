package natsserver_test

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/faultnet"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// silent is a network that carries nothing any more, and breaks nothing.
func silent(r *faultnet.Relay) {
	hold := faultnet.Fault{Mode: faultnet.Hold}
	r.Set(hold, hold)
}

func relay(t *testing.T, to string) *faultnet.Relay {
	t.Helper()
	r, err := faultnet.New(to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func answers(t *testing.T, nc *nats.Conn) {
	t.Helper()
	if _, err := nc.QueueSubscribe("ask", "all", func(m *nats.Msg) { _ = m.Respond(nil) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// TestSilentMachine cuts off those who answer a command, one at a server and one behind a route. They
// are not asked for long.
func TestSilentMachine(t *testing.T) {
	ports, routes, servers := make([]string, 2), make([]*faultnet.Relay, 2), make([]*natsserver.Server, 2)
	for i := range ports {
		port, err := freeport.Find()
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		routes[i] = relay(t, ports[i])
	}
	var starts sync.WaitGroup
	for i := range servers {
		starts.Go(func() { // each needs the other
			var err error
			servers[i], err = natsserver.Start(natsserver.Config{Dir: t.TempDir(), Name: fmt.Sprint("n", i), Cluster: natsserver.Cluster{Name: "c", Listen: ports[i], Routes: []string{routes[1-i].Addr()}}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	if t.Failed() {
		return
	}
	a, b := servers[0], servers[1]
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	client := relay(t, a.URL()[len("nats://"):])
	answers(t, connect(t, "nats://"+client.Addr()))
	answers(t, connect(t, b.URL()))
	asks := connect(t, a.URL())
	ask := func() error { _, err := asks.Request("ask", nil, 200*time.Millisecond); return err }
	many := func() error {
		for i := range 30 {
			if err := ask(); err != nil {
				return fmt.Errorf("request %d: %w", i, err)
			}
		}
		return nil
	}
	wait.Until(t, "both to answer", many)
	silent(client)
	wait.Until(t, "the other one alone to be asked", many)
	silent(routes[0])
	silent(routes[1])
	wait.Until(t, "nobody to be asked", func() error {
		if err := ask(); !errors.Is(err, nats.ErrNoResponders) {
			return fmt.Errorf("a request ends with %v", err)
		}
		return nil
	})
}
