package replicaregistry

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/client"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

// Beyond this machine the ZooKeeper port needs certificates, or to be told that it does
// not.
func TestZKPortBeyondLoopback(t *testing.T) {
	authority := certs.NewAuthority(t)
	for _, tc := range []struct {
		name   string
		listen string
		port   ZKPort
		refuse string
	}{
		{"loopback", "127.0.0.1:0", ZKPort{}, ""},
		{"everywhere", "0.0.0.0:0", ZKPort{}, "--insecure-zk"},
		{"everywhere, by name", "0.0.0.0:0", ZKPort{Insecure: true}, ""},
		{"everywhere, with certificates", "0.0.0.0:0", ZKPort{TLS: authority.Issue("port")}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := mem.New()
			t.Cleanup(func() { _ = b.Close() })
			s, err := New(Config{ZKListen: tc.listen, ZK: tc.port}, controltest.Env(b))
			if err != nil {
				t.Fatal(err)
			}
			if tc.refuse == "" {
				controltest.Start(t, s)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), controltest.Patience)
			defer cancel()
			if err := s.Run(ctx); err == nil || !strings.Contains(err.Error(), tc.refuse) {
				t.Errorf("Run says %v; it should name %s", err, tc.refuse)
			}
		})
	}
}

// Who gets in is what ZooKeeper's ssl.clientAuth says.
func TestZKClientAuth(t *testing.T) {
	authority, stranger := certs.NewAuthority(t), certs.NewAuthority(t)
	trusting := load(t, authority.Issue("a client"))
	shown := map[string]*tls.Config{
		"of the authority": trusting,
		"none":             {RootCAs: trusting.RootCAs, MinVersion: tls.VersionTLS12},
		"a stranger's":     {RootCAs: trusting.RootCAs, GetClientCertificate: load(t, stranger.Issue("x")).GetClientCertificate, MinVersion: tls.VersionTLS12},
		"TLS 1.2":          {RootCAs: trusting.RootCAs, GetClientCertificate: trusting.GetClientCertificate, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12},
		"TLS 1.1":          {RootCAs: trusting.RootCAs, GetClientCertificate: trusting.GetClientCertificate, MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11}, //nolint:gosec // which is refused
	}
	for auth, lets := range map[string][]string{
		"":     {"of the authority", "TLS 1.2"},
		"need": {"of the authority", "TLS 1.2"},
		"want": {"of the authority", "TLS 1.2", "none"},
		"none": {"of the authority", "TLS 1.2", "none", "a stranger's"},
	} {
		b := mem.New()
		t.Cleanup(func() { _ = b.Close() })
		s, err := New(Config{ZKListen: "127.0.0.1:0", ZK: ZKPort{TLS: authority.Issue("port"), ClientAuth: auth}}, controltest.Env(b))
		if err != nil {
			t.Fatal(err)
		}
		stop := controltest.Start(t, s)
		wait.For(t, "the registry to write", s.writes.Writable)
		for who, cfg := range shown {
			err := comesIn(t, s.ZKAddr(), cfg)
			want := false
			for _, w := range lets {
				want = want || w == who
			}
			if (err == nil) != want {
				t.Errorf("clientAuth %q, certificate %s: %v", auth, who, err)
			}
		}
		if _, err := client.Dial(s.ZKAddr(), wire.ConnectRequest{TimeoutMS: 4000}, controltest.Patience); err == nil {
			t.Errorf("clientAuth %q: a client came in without TLS", auth)
		}
		stop()
	}
}

func load(t *testing.T, f mtls.Files) *tls.Config {
	t.Helper()
	c, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// comesIn opens a session and closes it again.
func comesIn(t *testing.T, addr string, cfg *tls.Config) error {
	t.Helper()
	nc, err := (&tls.Dialer{NetDialer: &net.Dialer{Timeout: controltest.Patience}, Config: cfg}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return err
	}
	c, err := client.Open(nc, wire.ConnectRequest{TimeoutMS: 4000}, controltest.Patience)
	if err != nil {
		return err
	}
	defer c.Close()
	if c.Session.SessionID == 0 {
		return errors.New("no session")
	}
	_, _, err = c.Ask(wire.OpCloseSession, nil)
	return err
}

// TestOracleKazooOverTLS has kazoo show a certificate and write.
func TestOracleKazooOverTLS(t *testing.T) {
	python := oracle.Python(t)
	authority := certs.NewAuthority(t)
	h := openHarness(t, Config{ZK: ZKPort{TLS: authority.Issue("port")}})
	mine := authority.Issue("kazoo")
	const script = `
import sys
from kazoo.client import KazooClient
addr, cert, key, ca = sys.argv[1:]
c = KazooClient(addr, use_ssl=True, certfile=cert, keyfile=key, ca=ca)
c.start(timeout=10)
c.create("/tls", b"sealed")
print(c.get("/tls")[0].decode())
c.stop()
`
	cmd := exec.CommandContext(t.Context(), python, "-c", script, h.ZKAddr(), mine.Cert, mine.Key, mine.CA)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil || string(out) != "sealed\n" {
		t.Errorf("kazoo says %q, %v", out, err)
	}
}

// Every limit of the port is a flag, with its default, and refused where it cannot work.
func TestZKFlags(t *testing.T) {
	parse := func(args ...string) (*Config, error) {
		c := &Config{Getenv: func(string) string { return "" }}
		fs := pflag.NewFlagSet("replica-registry", pflag.ContinueOnError)
		c.Register(fs)
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		return c, c.Validate()
	}
	c, err := parse()
	if err != nil || c.ZK.ClientAuth != "need" || c.ZK.MaxConns != 1000 || c.ZK.MaxOutstanding != 1000 ||
		c.ZK.MinSessionTimeout != 4*time.Second || c.ZK.MaxSessionTimeout != 40*time.Second || len(c.ZK.Words) != 10 {
		t.Errorf("defaults: %+v, %v", c.ZK, err)
	}
	c, err = parse("--zk-max-connections=7", "--zk-max-connections-per-ip=3", "--zk-max-sessions=9", "--zk-max-outstanding=5", "--zk-words=ruok,dump",
		"--zk-min-session-timeout=1s", "--zk-max-session-timeout=10s", "--zk-client-auth=want", "--insecure-zk")
	port, perr := c.ZK.server("127.0.0.1:0", mtls.Files{})
	if err != nil || perr != nil || port.MaxConns != 7 || port.MaxConnsPerIP != 3 || port.MaxSessions != 9 || port.MaxOutstanding != 5 || !port.Plaintext ||
		strings.Join(port.Words, " ") != "ruok dump" || port.MinSessionTimeout != time.Second || port.MaxSessionTimeout != 10*time.Second {
		t.Errorf("given: %+v, %v, %v", port, err, perr)
	}
	for _, tc := range []struct{ args, says string }{
		{"--zk-client-auth=maybe", "--zk-client-auth"},
		{"--insecure-zk --zk-tls-cert=x", "contradict"},
		{"--zk-max-connections=-1", "--zk-max-connections"},
		{"--zk-max-connections-per-ip=-1", "--zk-max-connections-per-ip"},
		{"--zk-max-sessions=-1", "--zk-max-sessions"},
		{"--zk-max-outstanding=99999999", "--zk-max-outstanding"},
		{"--zk-words=ruok,boom", "--zk-words boom"},
		{"--zk-min-session-timeout=1ms", "--zk-min-session-timeout"},
		{"--zk-max-session-timeout=1s", "is above"},
	} {
		if _, err := parse(strings.Fields(tc.args)...); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v; it should say %q", tc.args, err, tc.says)
		}
	}
	for _, files := range []mtls.Files{{Cert: "/none/cert"}, {Cert: "/none/cert", Key: "/none/key", CA: "/none/ca"}} {
		if _, err := New(Config{ZKListen: "127.0.0.1:0", ZK: ZKPort{TLS: files}}, controltest.Env(mem.New())); err == nil || !strings.Contains(err.Error(), "--zk-tls-cert") {
			t.Errorf("%+v: %v", files, err)
		}
	}
}
