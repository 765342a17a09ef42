package jetstream_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/bustest"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
)

func TestMain(m *testing.M) {
	if crashChild() || leaseChild() || natstest.Node() {
		return
	}
	goleak.VerifyTestMain(m)
}

func startServer(t testing.TB, dir string, port int) *natsserver.Server {
	t.Helper()
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
	b, err := jetstream.Connect(t.Context(), cfg)
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
