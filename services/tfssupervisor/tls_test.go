package tfssupervisor_test

import (
	"crypto/tls"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/services/tfssupervisor"
)

// A supervisor configures its server over TLS, wherever it listens: it knows the certificate
// that both were given, and no other of the same authority.
func TestConfiguresItsServerOverTLS(t *testing.T) {
	authority := certs.NewAuthority(t)
	files := authority.Issue("server")
	port := func(name string) *tls.Config {
		conf, err := authority.Issue(name).Server(tls.RequireAndVerifyClientCert)
		if err != nil {
			t.Fatal(err)
		}
		return conf
	}
	own, err := files.Server(tls.RequireAndVerifyClientCert)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(h *harness) {
		h.shows, h.listen = own, "127.0.0.9:0" // an address that the certificate does not name
		h.change = func(c *tfssupervisor.Config) { c.GRPCTLS = files }
	})
	f := h.born()
	h.plan(7, map[string][]string{"c.0": {"entry"}})
	h.copied("entry", 7, "host")
	h.wantConfig(f, "m:entry@/copies/m/entry/[7]")

	h = newHarness(t, func(h *harness) {
		h.shows = port("other")
		h.change = func(c *tfssupervisor.Config) { c.GRPCTLS = files }
	})
	f = h.born()
	h.plan(7, map[string][]string{"c.0": {"entry"}})
	h.copied("entry", 7, "host")
	h.wantProblem("it does not answer")
	h.wantConfig(f)
}
