package mtls_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/mtls"
)

func TestPortsBeyondThisMachineNeedKeysOrLeave(t *testing.T) {
	for addr, local := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "localhost:0": true, "127.9.9.9:1": true, "unix:///run/x": true,
		"0.0.0.0:1": false, "[::]:1": false, ":1": false, "10.0.0.1:1": false, "host.example:1": false, "nonsense": false,
	} {
		p := mtls.Port{Role: "modelserver", Name: "grpc", Addr: addr, Switch: "--insecure-grpc"}
		err := p.Check()
		if (err == nil) != local || err != nil && (!strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "or allow it with --insecure-grpc") || strings.Contains(err.Error(), "certificates")) {
			t.Errorf("%s: %v", addr, err)
		}
		p.Keys = "--rows-tls"
		if err := p.Check(); err != nil && !strings.Contains(err.Error(), "--rows-tls-cert") {
			t.Errorf("%s: %v; want the flags of the certificates", addr, err)
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
