package call_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/host/call"
)

// A call reaches its handler with its body and with who asked, a refusal is an error.
func TestCall(t *testing.T) {
	s, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	b, err := jetstream.Connect(t.Context(), jetstream.Config{URL: s.URL(), BZID: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	stop, err := b.Commands().Serve(t.Context(), bus.Service{BZID: "demo", Name: "portal", Version: "1.0.0", Endpoints: map[string]bus.Handler{
		"say": func(ctx context.Context, body []byte) ([]byte, error) {
			if a := bus.AskedOf(ctx); a.By == "" || a.Key != "" || a.From != host {
				t.Errorf("asked by %+v", a)
			}
			return body, nil
		},
		"refuse": func(context.Context, []byte) ([]byte, error) {
			return nil, bus.Refuse(bus.CodeConflict, "it is unloaded already")
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	run := func(stdin string, args ...string) (string, error) {
		var out bytes.Buffer
		cmd := call.Command()
		cmd.SetArgs(append(args, "--nats", s.URL()))
		cmd.SetIn(strings.NewReader(stdin))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	if out, err := run("", "portal.say", `{"a":1}`); err != nil || out != "{\"a\":1}\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := run("from stdin", "portal.say", "-"); err != nil || out != "from stdin\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := run("", "portal.refuse"); err == nil || !strings.Contains(err.Error(), "unloaded already") {
		t.Errorf("a refusal: %v", err)
	}
	if _, err := run("", "portal.nothing"); err == nil || !strings.Contains(err.Error(), "nobody serves it") {
		t.Errorf("an endpoint that is not there: %v", err)
	}
}
