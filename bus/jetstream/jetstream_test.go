package jetstream_test

import (
	"context"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/bustest"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

func TestMain(m *testing.M) {
	if crashChild() || leaseChild() || serverChild() || natstest.Node() {
		return
	}
	leaks.Main(m)
}

// startServer starts a server on that port; 0: on one to which it may come back.
func startServer(t testing.TB, dir string, port int) *natsserver.Server {
	t.Helper()
	if port == 0 {
		var err error
		if port, err = freeport.Find(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := natsserver.Start(natsserver.Config{Dir: dir, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func connect(t testing.TB, cfg jetstream.Config) *jetstream.Bus {
	t.Helper()
	cfg.Name, cfg.BZID = t.Name(), "bustest"
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	b, err := jetstream.Connect(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestContract(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	t.Run("socket", func(t *testing.T) {
		bustest.Run(t, func(t *testing.T) bus.Bus { return connect(t, jetstream.Config{URL: s.URL()}) })
	})
	t.Run("in process", func(t *testing.T) {
		bustest.Run(t, func(t *testing.T) bus.Bus { return connect(t, jetstream.Config{Server: s}) })
	})
}
