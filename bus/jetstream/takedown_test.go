package jetstream_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// A service that is taken down in an outage, as by a leader that has lost its lease in it,
// is gone once the connection is back: every call goes to its successor.
func TestServiceTakenDownInAnOutageIsGone(t *testing.T) {
	g := &gate{refused: make(chan struct{}, 100)}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		NoLog: true, NoSigs: true, CustomClientAuthentication: g})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(wait.Patience) {
		t.Fatal("the server does not start")
	}
	serves := func(b *jetstream.Bus, who string) func() {
		stop, err := b.Commands().Serve(t.Context(), bus.Service{BZID: "bustest", Name: "chief", Version: "1.0.0", Description: "test",
			Endpoints: map[string]bus.Handler{"who": func(context.Context, []byte) ([]byte, error) { return []byte(who), nil }}})
		if err != nil {
			t.Fatal(err)
		}
		return stop
	}
	log := make(told, 1000)
	former := connect(t, jetstream.Config{URL: s.ClientURL(), Log: slog.New(log)})
	conns, err := s.Connz(nil)
	if err != nil || len(conns.Conns) != 1 {
		t.Fatalf("%d connections, %v", len(conns.Conns), err)
	}
	cid := conns.Conns[0].Cid
	other := connect(t, jetstream.Config{URL: s.ClientURL()})
	stop := serves(former, "former")
	g.shut.Store(true)
	if err := s.DisconnectClientByID(cid); err != nil {
		t.Fatal(err)
	}
	<-g.refused // it tries to come back
	stop()
	serves(other, "successor")
	g.shut.Store(false)
	log.await(t, "nats is back")
	if _, err := former.Log().Last(t.Context()); err != nil { // the server has all that was sent at the reconnect
		t.Fatal(err)
	}
	for late := time.After(wait.Patience); subscribers(t, s, "monolith.bustest.cmd.chief.who") != 1; {
		select {
		case <-late:
			t.Fatal("the former leader is still subscribed")
		case <-time.After(time.Millisecond):
		}
	}

	for i := range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
		defer cancel()
		if reply, err := other.Commands().Call(ctx, "bustest", "chief.who", nil); err != nil || string(reply) != "successor" {
			t.Fatalf("call %d: %s, %v", i, reply, err)
		}
	}
}

// subscribers is how many connections are subscribed to the subject.
func subscribers(t *testing.T, s *server.Server, subject string) (n int) {
	t.Helper()
	conns, err := s.Connz(&server.ConnzOptions{Subscriptions: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conns.Conns {
		if slices.Contains(c.Subs, subject) {
			n++
		}
	}
	return n
}
