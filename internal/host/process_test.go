package host

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services"
	"github.com/spf13/pflag"
)

// waiting is a role that does nothing until it is told to end.
type waiting struct{ ready chan struct{} }

func (w waiting) Ready() <-chan struct{} { return w.ready }

func (w waiting) Run(ctx context.Context) error {
	close(w.ready)
	<-ctx.Done()
	return nil
}

// A role whose connection is over ends with the cause, so that whoever keeps it running
// starts it on a new one; it does not stay up, green and dead.
func TestRoleEndsWithItsConnection(t *testing.T) {
	s, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(t.TempDir(), "nats")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	relay := natstest.NewRelay(t, s.URL())
	role := waiting{make(chan struct{})}
	p := Process{named: func() bool { return true }, fs: pflag.NewFlagSet("portal", pflag.ContinueOnError), conn: connect.Config{NATS: relay.URL(), BZID: "demo", Level: "error", To: t.Output()},
		role: Role{Name: "portal"}, status: statusPort{listen: "127.0.0.1:0"}, statusFile: filepath.Join(t.TempDir(), "status"),
		bound: blueprint{validate: func() error { return nil }, build: func(surroundings) (services.Role, error) { return role, nil }}}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	<-role.ready
	relay.Say("-ERR 'Parser Error'")
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "Parser Error") || ctx.Err() != nil {
		t.Errorf("the process ends with %v", err)
	}
}

// Whoever works on a NATS server that is not embedded is told what it must be set to, once,
// and without its password, until the environment says that it is.
func TestForeignServerIsWarnedOf(t *testing.T) {
	t.Setenv("MONOLITH_NATS_SYNC", "")
	got := connect.Unsynced("nats://u:secret@a:4222,nats://u:secret@b:4222")
	if !strings.Contains(got, "sync_interval: always") || !strings.Contains(got, "@a:4222,") || !strings.Contains(got, "@b:4222 ") || strings.Contains(got, "secret") {
		t.Errorf("the warning is %q", got)
	}
	s, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(t.TempDir(), "nats")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, known := range []string{"", "always"} {
		t.Setenv("MONOLITH_NATS_SYNC", known)
		cfg := small(t)
		cfg.Logs.NATS, cfg.Logs.To = s.URL(), t.Output()
		logs, err := Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(strings.Join(logs.Notes, "\n"), "sync_interval: always"); told != (known == "") {
			t.Errorf("%q: %q", known, logs.Notes)
		}
		if err := logs.Close(); err != nil {
			t.Error(err)
		}
	}
}
