package mtls_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// shake connects a client to a server and returns the name that the client saw, and
// what the server thought of it.
func shake(t *testing.T, server, client *tls.Config) (saw string, clientErr, serverErr error) {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	done := make(chan error, 1)
	go func() {
		c, err := tls.NewListener(ln, server).Accept()
		if err == nil {
			err = c.SetDeadline(time.Now().Add(wait.Patience))
		}
		if err == nil {
			_, err = io.WriteString(c, "x")
			err = firstOf(err, c.Close())
		}
		done <- err
	}()
	client = client.Clone()
	client.ServerName = "127.0.0.1"
	c, err := (&tls.Dialer{Config: client}).DialContext(context.Background(), "tcp", ln.Addr().String())
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		saw = c.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
		c.Close()
	}
	return saw, err, <-done
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func load(t *testing.T, f mtls.Files) *tls.Config {
	t.Helper()
	c, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOnlyTheAuthoritysOwnTalkToEachOther(t *testing.T) {
	authority, stranger := certs.NewAuthority(t), certs.NewAuthority(t)
	server, client := load(t, authority.Issue("server")), load(t, authority.Issue("client"))
	if saw, err, serr := shake(t, server, client); err != nil || serr != nil || saw != "server" {
		t.Fatalf("two of one authority: saw %q, %v, %v", saw, err, serr)
	}
	if _, err, _ := shake(t, server, load(t, stranger.Issue("client"))); err == nil {
		t.Error("a stranger was let in, or trusted the authority")
	}
	bare := &tls.Config{RootCAs: client.RootCAs}
	if _, err, serr := shake(t, server, bare); err == nil || serr == nil {
		t.Errorf("a client without a certificate was let in: %v, %v", err, serr)
	}
}

func TestCertificateIsRenewedWithoutRestart(t *testing.T) {
	authority := certs.NewAuthority(t)
	files, client := authority.Issue("server"), load(t, authority.Issue("client"))
	server := load(t, files)
	next := authority.Issue("renewed")
	for from, to := range map[string]string{next.Key: files.Key, next.Cert: files.Cert} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(files.Cert, later, later); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(wait.Patience); ; {
		saw, err, serr := shake(t, server, client)
		if err != nil || serr != nil {
			t.Fatal(err, serr)
		}
		if saw == "renewed" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still served as %q", saw)
		}
	}
}

// replace puts the content of one file in the place of another, with a later time of change.
func replace(t *testing.T, path, by string, later time.Duration) {
	t.Helper()
	raw, err := os.ReadFile(by)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(later)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// The authorities of a port are replaced without a restart: who had none is let in, and who
// had one is not any more.
func TestAuthoritiesOfAPortAreRenewedWithoutRestart(t *testing.T) {
	old, next := certs.NewAuthority(t), certs.NewAuthority(t)
	files := old.Issue("server")
	server, err := files.Server(tls.RequireAndVerifyClientCert)
	if err != nil {
		t.Fatal(err)
	}
	client := func(issued mtls.Files) error {
		issued.CA = old.Issue("x").CA // the server's certificate stays
		conf, err := issued.Client()
		if err != nil {
			t.Fatal(err)
		}
		_, cerr, serr := shake(t, server, conf)
		return firstOf(cerr, serr)
	}
	before, after := old.Issue("before"), next.Issue("after")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	replace(t, ca, files.CA, 0)
	files.CA = ca
	if server, err = files.Server(tls.RequireAndVerifyClientCert); err != nil {
		t.Fatal(err)
	}
	if client(before) != nil || client(after) == nil {
		t.Fatal("the port does not begin with its first authorities")
	}
	replace(t, ca, next.Issue("y").CA, time.Minute)
	wait.Until(t, "the next authorities", func() error { return client(after) })
	if client(before) == nil {
		t.Error("an authority that was taken away still lets its clients in")
	}
}

// A port without authorities takes any client, which trusts the authority of its own choice.
// The authorities by which a connection of our own is dialled are replaced without a restart: a
// server of the new one is trusted at the next dial, one of the old one is not any more.
func TestAuthoritiesOfWhoDialsAreRenewedWithoutRestart(t *testing.T) {
	old, next := certs.NewAuthority(t), certs.NewAuthority(t)
	files := old.Issue("client")
	trusted, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	files.CA = filepath.Join(t.TempDir(), "ca.pem") // of its own: the servers' stay
	if err := os.WriteFile(files.CA, trusted, 0o600); err != nil {
		t.Fatal(err)
	}
	client := load(t, files)
	dial := func(server mtls.Files) error {
		server.CA = old.Issue("x").CA // by which the client is known
		conf, err := mtls.To(client, "127.0.0.1:7")
		if err != nil {
			t.Fatal(err)
		}
		_, err, _ = shake(t, load(t, server), conf)
		return err
	}
	was, is := old.Issue("was"), next.Issue("is")
	if err := dial(was); err != nil {
		t.Fatal(err)
	}
	if err := dial(is); err == nil {
		t.Fatal("a stranger's server is trusted")
	}
	replace(t, files.CA, is.CA, time.Minute)
	wait.Until(t, "the new authority to be read", func() error { return dial(is) })
	if err := dial(was); err == nil {
		t.Error("a server of the old authority is trusted still")
	}
}

func TestAPortWithoutAuthorities(t *testing.T) {
	authority := certs.NewAuthority(t)
	files := authority.Issue("server")
	server, err := mtls.Files{Cert: files.Cert, Key: files.Key}.Server(tls.RequireAndVerifyClientCert)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mtls.Files{CA: files.CA}.Client()
	if err != nil {
		t.Fatal(err)
	}
	if saw, err, serr := shake(t, server, client); err != nil || serr != nil || saw != "server" {
		t.Errorf("a client without a certificate saw %q: %v, %v", saw, err, serr)
	}
	system, err := mtls.Files{}.Client()
	if err != nil {
		t.Fatal(err)
	}
	if _, err, _ := shake(t, server, system); err == nil {
		t.Error("a client that trusts the system's authorities trusts this one")
	}
}

// A process knows its own child by the certificate that both have, whatever the child's
// address is; another's of the same authority is not the child.
func TestTwinTrustsItsOwnCertificateAlone(t *testing.T) {
	authority := certs.NewAuthority(t)
	own, other := authority.Issue("own"), authority.Issue("other")
	twin, err := own.Twin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err, serr := shake(t, load(t, own), twin); err != nil || serr != nil {
		t.Errorf("its own: %v, %v", err, serr)
	}
	if _, err, _ := shake(t, load(t, other), twin); err == nil || !strings.Contains(err.Error(), "another certificate than") {
		t.Errorf("another's: %v", err)
	}
}

// Files are handed to a child that works in another folder.
func TestArgsAreAbsolute(t *testing.T) {
	got := mtls.Files{Cert: "a.pem", Key: "/b.key"}.Args("tls")
	if len(got) != 4 || got[0] != "--tls-cert" || !filepath.IsAbs(got[1]) || got[2] != "--tls-key" || got[3] != "/b.key" {
		t.Errorf("Args = %q", got)
	}
}

func TestLoadRefuses(t *testing.T) {
	authority := certs.NewAuthority(t)
	good := authority.Issue("a")
	other := authority.Issue("b")
	for name, tc := range map[string]struct {
		f    mtls.Files
		want string
	}{
		"one file missing": {mtls.Files{Cert: good.Cert, Key: good.Key}, "three files"},
		"no such file":     {mtls.Files{Cert: good.Cert + "x", Key: good.Key, CA: good.CA}, "load the certificate"},
		"another's key":    {mtls.Files{Cert: good.Cert, Key: other.Key, CA: good.CA}, "load the certificate"},
		"no authorities":   {mtls.Files{Cert: good.Cert, Key: good.Key, CA: good.Key}, "no certificate in PEM"},
	} {
		if _, err := tc.f.Load(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if c, err := (mtls.Files{}).Load(); c != nil || err != nil {
		t.Errorf("no files: %v, %v", c, err)
	}
	for _, f := range []mtls.Files{{CA: good.CA}, {Cert: good.Cert}, {Cert: good.Cert, Key: good.Key, CA: good.CA + "x"}} {
		if c, err := f.Server(tls.NoClientCert); err == nil {
			t.Errorf("a port with %v: %v", f, c)
		}
	}
	for _, f := range []mtls.Files{{Cert: good.Cert}, {CA: good.Key}} {
		if c, err := f.Client(); err == nil {
			t.Errorf("a client with %v: %v", f, c)
		}
	}
	if c, err := (mtls.Files{CA: good.CA}).Twin(); err != nil || c.VerifyConnection(tls.ConnectionState{}) == nil {
		t.Errorf("a twin without a certificate: %v", err)
	}
}
