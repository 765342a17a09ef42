package mtls_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/certs"
)

func TestPortsBeyondThisMachineNeedKeysOrLeave(t *testing.T) {
	for addr, local := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "localhost:0": true, "127.9.9.9:1": true, "unix:///run/x": true,
		"0.0.0.0:1": false, "[::]:1": false, ":1": false, "10.0.0.1:1": false, "host.example:1": false, "nonsense": false,
	} {
		p := mtls.Port{Role: "modelserver", Name: "grpc", Addr: addr, Keys: "--grpc-tls", Switch: "--insecure-grpc"}
		err := p.Check()
		if (err == nil) != local || err != nil && (!strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "or allow it with --insecure-grpc") ||
			!strings.Contains(err.Error(), "--grpc-tls-cert") || !strings.Contains(err.Error(), "--tls-cert")) {
			t.Errorf("%s: %v", addr, err)
		}
		for name, allow := range map[string]func(*mtls.Port){
			"keys":   func(p *mtls.Port) { p.TLS = &tls.Config{} },
			"leave":  func(p *mtls.Port) { p.Insecure = true },
			"closed": func(p *mtls.Port) { p.Addr = "" },
		} {
			q := p
			allow(&q)
			if err := q.Check(); err != nil {
				t.Errorf("%s with %s: %v", addr, name, err)
			}
		}
	}
}

// A port is under its own certificates, else under those made for it already, else under the
// shared ones; in plain text where that was asked for.
func TestWhoseKeysAPortHas(t *testing.T) {
	authority := certs.NewAuthority(t)
	own, shared := authority.Issue("own"), authority.Issue("shared")
	made, err := authority.Issue("made").Load()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		port mtls.Port
		want string // the certificate's name; empty: plain text
	}{
		"none":                {mtls.Port{}, ""},
		"own":                 {mtls.Port{Own: own, Shared: shared, TLS: made}, "own"},
		"made":                {mtls.Port{Shared: shared, TLS: made}, "made"},
		"shared":              {mtls.Port{Shared: shared}, "shared"},
		"plain":               {mtls.Port{Shared: shared, TLS: made, Insecure: true}, ""},
		"closed":              {mtls.Port{Shared: shared, Addr: "-"}, ""},
		"a socket of its own": {mtls.Port{Shared: shared, Addr: "unix:///run/x"}, ""},
	} {
		switch tc.port.Addr {
		case "":
			tc.port.Addr = "127.0.0.1:0"
		case "-":
			tc.port.Addr = ""
		}
		conf, err := tc.port.Config()
		got := ""
		if conf != nil {
			got, _, _ = shake(t, conf, load(t, authority.Issue("client")))
		}
		if err != nil || got != tc.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tc.want)
		}
	}
}

// Who may change what is served shows a certificate, not only is encrypted.
func TestPortsOfRightsNeedAuthorities(t *testing.T) {
	files := certs.NewAuthority(t).Issue("server")
	p := mtls.Port{Role: "ps", Name: "grpc", Addr: "0.0.0.0:0", Own: mtls.Files{Cert: files.Cert, Key: files.Key}, Keys: "--grpc-tls", Switch: "--insecure-grpc"}
	if _, err := p.Config(); err != nil {
		t.Errorf("encrypted: %v", err)
	}
	p.Mutual = true
	if _, err := p.Config(); err == nil || !strings.Contains(err.Error(), "--grpc-tls-ca") {
		t.Errorf("encrypted for anybody: %v", err)
	}
	p.Own.CA = files.CA
	if _, err := p.Config(); err != nil {
		t.Errorf("with authorities: %v", err)
	}
	p.Insecure = true
	if _, err := p.Config(); err == nil || !strings.Contains(err.Error(), "contradict") {
		t.Errorf("keys of its own and plain text: %v", err)
	}
	p = mtls.Port{Role: "ps", Name: "grpc", Addr: "127.0.0.1:0", Shared: mtls.Files{CA: files.CA}}
	if _, err := p.Config(); err == nil || !strings.Contains(err.Error(), "--tls-cert") {
		t.Errorf("authorities alone: %v", err)
	}
}
