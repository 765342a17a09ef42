package rowwire

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

func conf(t *testing.T, f mtls.Files) *tls.Config {
	t.Helper()
	c, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEncrypted(t *testing.T) {
	authority := certs.NewAuthority(t)
	server, client := conf(t, authority.Issue("server")), conf(t, authority.Issue("client"))
	serve := func(addr string) string {
		ln, err := Listen(context.Background(), addr)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, ln, echo{dim: 1}, Options{TLS: server}) }()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		return Addr(ln.Addr())
	}
	ask := func(addr string, conf *tls.Config) error {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
		defer cancel()
		pool := NewPool(conf)
		defer pool.Close()
		c, err := pool.Get(ctx, addr)
		if err != nil {
			return err
		}
		r, err := c.Lookup(ctx, &LookupRequest{Model: "m", Tables: []TableIDs{{Table: "a", IDs: []int64{1, 2, 3}}}})
		if err == nil && len(r.Values) != 1 {
			t.Errorf("answer %v", r)
		}
		return err
	}
	tcp, unix := serve("127.0.0.1:0"), serve("unix://"+filepath.Join(t.TempDir(), "s"))
	for addr, conf := range map[string]*tls.Config{tcp: client, unix: client} {
		if err := ask(addr, conf); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if err := ask(unix, nil); err != nil {
		t.Errorf("a unix socket is never encrypted: %v", err)
	}
	if err := ask(tcp, nil); CodeOf(err) == 0 {
		t.Errorf("an unencrypted client: %v", err)
	}
	if err := ask(tcp, conf(t, certs.NewAuthority(t).Issue("stranger"))); CodeOf(err) != Unavailable {
		t.Errorf("a stranger: %v", err)
	}
}
