package zookeeper

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/certs"
)

// Java gets key and certificate in one file, the key in the only form it reads.
func TestKeys(t *testing.T) {
	files := certs.NewAuthority(t).Issue("server")
	path := filepath.Join(t.TempDir(), "keys.pem")
	if err := writeKeys(path, files); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	key, _ := pem.Decode(raw)
	if key == nil || key.Type != "PRIVATE KEY" {
		t.Fatalf("it begins with %+v", key)
	}
	if _, err := x509.ParsePKCS8PrivateKey(key.Bytes); err != nil {
		t.Error(err)
	}
	if _, err := tls.X509KeyPair(raw, raw); err != nil {
		t.Errorf("key and certificate do not belong together: %v", err)
	}
	for _, bad := range []mtls.Files{{Cert: files.Cert, Key: "/none"}, {Cert: files.Cert, Key: os.DevNull}, {Cert: "/none", Key: files.Key}} {
		if err := writeKeys(path, bad); err == nil {
			t.Errorf("%+v: no complaint", bad)
		}
	}
}

// What a server is told stands in its file.
func TestConfiguration(t *testing.T) {
	files := certs.NewAuthority(t).Issue("server")
	for _, tc := range []struct {
		name    string
		cfg     Config
		members string
		want    []string
		not     string
	}{
		{"alone", Config{}, "", []string{"tickTime=2000\n", "clientPortAddress=127.0.0.1\n"}, "secureClientPort"},
		{"a member", Config{}, "server.1=a:1:2\n", []string{"server.1=a:1:2\n"}, "secureClientPort"},
		{"with a secure port", Config{TLS: files}, "", []string{"NettyServerCnxnFactory\n", "ssl.clientAuth=need\n", "ssl.trustStore.location=" + files.CA + "\n"}, "server."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.cfg.Dir = t.TempDir()
			s, err := configure(tc.cfg, tc.members)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(s.conf)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(string(raw), want) {
					t.Errorf("%q is missing from\n%s", want, raw)
				}
			}
			if strings.Contains(string(raw), "\n"+tc.not) || (s.SecureAddr() != "") != (tc.cfg.TLS != mtls.Files{}) {
				t.Errorf("secure at %q:\n%s", s.SecureAddr(), raw)
			}
		})
	}
}
