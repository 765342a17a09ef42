package stream

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// TestQuestionsInAnElection asks a cluster that answers nothing the first time, as while it elects a
// stream's leader: the next attempt comes soon, and its answer counts.
func TestQuestionsInAnElection(t *testing.T) {
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(wait.Patience) {
		t.Fatal("the server does not start")
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	c, err := conn.Dial(ctx, conn.Config{URL: ns.ClientURL(), Timeout: wait.Patience, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	s := Of(c, "S")
	for what, tc := range map[string]struct {
		subject, answer string
		ask             func() error
	}{
		"the end":   {"$JS.API.STREAM.INFO.S", `{"config":{"name":"S"},"state":{"last_seq":7}}`, func() error { _, err := s.extent(ctx); return err }},
		"a message": {"$JS.API.STREAM.MSG.GET.S", `{"message":{"seq":7,"subject":"a"}}`, func() error { _, err := s.Ask(ctx, Query{Seq: 7}); return err }},
		"a consumer": {"$JS.API.CONSUMER.CREATE.S.>", `{"stream_name":"S","name":"c","config":{}}`, func() error {
			_, err := (&follower{Stream: s, next: 1}).create(ctx)
			return err
		}},
	} {
		t.Run(what, func(t *testing.T) {
			var asked atomic.Int32
			sub, err := c.NATS.Subscribe(tc.subject, func(m *nats.Msg) {
				if asked.Add(1) > 1 {
					_ = m.Respond([]byte(tc.answer))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = sub.Unsubscribe() }()
			began := time.Now()
			if err := tc.ask(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); asked.Load() != 2 || took > 4*time.Second {
				t.Errorf("answered after %v and %d attempts", took, asked.Load())
			}
		})
	}
}
