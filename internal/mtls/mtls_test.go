package mtls_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
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
	for deadline := time.Now().Add(30 * time.Second); ; {
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
}
