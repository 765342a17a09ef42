package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// told is a log whose messages a test waits for.
type told chan string

func (told) Enabled(context.Context, slog.Level) bool { return true }
func (c told) WithAttrs([]slog.Attr) slog.Handler     { return c }
func (c told) WithGroup(string) slog.Handler          { return c }
func (c told) Handle(_ context.Context, r slog.Record) error {
	select {
	case c <- r.Message:
	default:
	}
	return nil
}

// await returns what was logged up to the message.
func (c told) await(t *testing.T, message string) (before []string) {
	t.Helper()
	late := time.After(wait.Patience)
	for {
		select {
		case m := <-c:
			if m == message {
				return before
			}
			before = append(before, m)
		case <-late:
			t.Fatalf("%q was never logged", message)
		}
	}
}

// gate lets clients in, or refuses them and counts.
type gate struct {
	shut    atomic.Bool
	refused chan struct{}
}

func (g *gate) Check(server.ClientAuthentication) bool {
	if !g.shut.Load() {
		return true
	}
	g.refused <- struct{}{}
	return false
}

// A server that refuses the credentials for a while, because it started before its accounts
// were there or its secret is being rotated, is taken for one that is away.
func TestRefusedCredentialsAreAnOutage(t *testing.T) {
	g := &gate{refused: make(chan struct{}, 1000)}
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
	log, well := make(told, 1000), health.New()
	b := connect(t, jetstream.Config{URL: s.ClientURL(), Log: slog.New(log), Health: well})
	if _, err := b.Log().Append(t.Context(), draft("a", "before", bus.Any)); err != nil {
		t.Fatal(err)
	}
	g.shut.Store(true)
	conns, err := s.Connz(nil)
	if err != nil || len(conns.Conns) != 1 {
		t.Fatalf("%d connections, %v", len(conns.Conns), err)
	}
	if err := s.DisconnectClientByID(conns.Conns[0].Cid); err != nil {
		t.Fatal(err)
	}
	const attempts = 7 // twice the same refusal is what ends a connection of nats.go by default
	for range attempts {
		select {
		case <-g.refused:
		case <-time.After(wait.Patience):
			t.Fatal("the client has given up")
		}
	}
	wait.Seen(t, "a problem that tells the refusal", func() (string, bool) { // the newest error: one attempt may have been late
		p := well.Problems()
		return fmt.Sprint(p), len(p) == 1 && p[0].Name == "nats" && strings.Contains(p[0].Reason, "authorization")
	})
	g.shut.Store(false)
	if before := log.await(t, "nats is away"); len(before) > 0 {
		t.Errorf("logged before the outage: %q", before)
	}
	if refusals := log.await(t, "nats is back"); len(refusals) == 0 || len(refusals) >= attempts {
		t.Errorf("%d attempts are refused for one reason, and the log says %q", attempts, refusals)
	}
	if p := well.Problems(); len(p) != 0 {
		t.Errorf("problems: %v", p)
	}
	if seqs, err := b.Log().Append(t.Context(), draft("a", "after", bus.Any)); err != nil || seqs[0] != 2 {
		t.Errorf("Append = %v, %v", seqs, err)
	}
	if b.Err() != nil {
		t.Errorf("the bus is over: %v", b.Err())
	}
}

// What the client library cannot go on from ends the bus, and all that works on it, with the
// cause; nothing waits for a connection that never comes back.
func TestClosedConnectionEndsTheBus(t *testing.T) {
	relay := natstest.NewRelay(t, startServer(t, t.TempDir(), 0).URL())
	b := connect(t, jetstream.Config{URL: relay.URL()})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	lease, release, err := b.Leases().TryAcquire(ctx, "chief", "one", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := b.Log().Append(ctx, draft("a", "x", bus.Any)); err != nil {
		t.Fatal(err)
	}
	followed, seen := make(chan error, 1), make(chan struct{})
	go func() {
		followed <- b.Log().Follow(ctx, 1, 0, func(events.Recorded) error { close(seen); return nil })
	}()
	<-seen
	if _, err := b.Log().Last(ctx); err != nil { // nothing else is on its way
		t.Fatal(err)
	}
	select {
	case <-b.Done():
		t.Fatal("over before it began")
	default:
	}
	relay.Say("-ERR 'Parser Error'")
	select {
	case <-b.Done():
	case <-ctx.Done():
		t.Fatal("the bus goes on without a connection")
	}
	if err := b.Err(); err == nil || !strings.Contains(err.Error(), "Parser Error") {
		t.Errorf("Err = %v", err)
	}
	<-lease.Lost
	if err := <-followed; !errors.Is(err, bus.ErrUnavailable) || !strings.Contains(err.Error(), "Parser Error") {
		t.Errorf("Follow = %v", err)
	}
	if _, err := b.Log().Last(ctx); !errors.Is(err, bus.ErrUnavailable) || ctx.Err() != nil {
		t.Errorf("Last = %v", err)
	}
	if _, err := b.Log().Append(ctx, draft("a", "y", bus.Any)); !errors.Is(err, bus.ErrUnavailable) || !strings.Contains(err.Error(), "Parser Error") {
		t.Errorf("Append = %v", err)
	}
}

// Writes that nobody acks are a problem that people see, until the first one is acked.
func TestUnackedWritesAreAProblem(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, dir, 0)
	port, well := portOf(t, s), health.New()
	b := connect(t, jetstream.Config{URL: s.URL(), Health: well})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	stored := make(chan error, 1)
	go func() {
		_, err := b.Log().Append(ctx, draft("a", "x", bus.Any))
		stored <- err
	}()
	wait.Seen(t, "writes that are sent again", func() (string, bool) {
		return well.Summary(), strings.Contains(well.Summary(), "MONOLITH: writes are sent again")
	})
	startServer(t, dir, port)
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	wait.Seen(t, "no problem any more", func() (string, bool) { return well.Summary(), !strings.Contains(well.Summary(), "MONOLITH") })
}
