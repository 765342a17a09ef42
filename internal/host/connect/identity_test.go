package connect_test

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// What the flags say of NATS's keys is what the environment says to a child, in whatever folder
// that works; both connect.
func TestKeysOfNATS(t *testing.T) {
	for _, name := range []string{"MONOLITH_NATS", "MONOLITH_NATS_CA", "MONOLITH_NATS_CERT", "MONOLITH_NATS_KEY", "MONOLITH_NATS_CREDS"} {
		t.Setenv(name, "")
	}
	authority := certs.NewAuthority(t)
	conf, err := authority.Issue("server").Server(tls.RequireAndVerifyClientCert)
	if err != nil {
		t.Fatal(err)
	}
	s, err := natsserver.Start(natsserver.Config{Dir: t.TempDir(), TLS: conf})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	keys := authority.Issue("client")
	t.Chdir(filepath.Dir(keys.Cert))
	parse := func(args ...string) *connect.Config {
		t.Helper()
		c, fs := new(connect.Config), pflag.NewFlagSet("test", pflag.ContinueOnError)
		c.Register(fs)
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		return c
	}
	dial := func(c *connect.Config) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
		defer cancel()
		b, err := c.Dial(ctx, "test")
		if err != nil {
			t.Error(err)
			return
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	parent := parse("--nats", s.URL(), "--nats-ca", filepath.Base(keys.CA), "--nats-cert", filepath.Base(keys.Cert), "--nats-key", filepath.Base(keys.Key))
	dial(parent)
	env := parent.Env()
	if slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "MONOLITH_NATS_CREDS") }) {
		t.Errorf("a child is told of credentials that there are none of: %q", env)
	}
	t.Chdir(t.TempDir())
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	dial(parse())
	parent.Creds = "user.creds"
	if env := parent.Env(); !slices.ContainsFunc(env, func(v string) bool {
		path, is := strings.CutPrefix(v, "MONOLITH_NATS_CREDS=")
		return is && filepath.IsAbs(path)
	}) {
		t.Errorf("a child is told of no credentials: %q", env)
	}
}
