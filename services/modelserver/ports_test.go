package modelserver_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/modelserver"
)

// Whoever reaches the gRPC port may unload every model, and read any folder.
func TestPortsBeyondThisMachineAreAskedForByName(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		cfg  modelserver.Config
		keys *tls.Config
		want string // in the refusal; empty: it passes
	}{
		"loopback":       {modelserver.Config{}, nil, ""},
		"grpc":           {modelserver.Config{GRPC: "0.0.0.0:0"}, nil, "--insecure-grpc"},
		"grpc by name":   {modelserver.Config{GRPC: "0.0.0.0:0", InsecureGRPC: true}, nil, ""},
		"rest":           {modelserver.Config{HTTP: ":0"}, nil, "--insecure-rest"},
		"rest by name":   {modelserver.Config{HTTP: "[::]:0", InsecureREST: true}, nil, ""},
		"rest not grpc":  {modelserver.Config{HTTP: "[::]:0", InsecureGRPC: true, InsecureRows: true}, nil, "--insecure-rest"},
		"rows":           {modelserver.Config{Rows: "0.0.0.0:0"}, nil, "--insecure-rows"},
		"rows by name":   {modelserver.Config{Rows: "0.0.0.0:0", InsecureRows: true}, nil, ""},
		"rows with keys": {modelserver.Config{Rows: "0.0.0.0:0"}, &tls.Config{}, ""},
		"keys of rows":   {modelserver.Config{GRPC: "0.0.0.0:0"}, &tls.Config{}, "--insecure-grpc"},
	} {
		tc.cfg.Container = "c"
		_, err := modelserver.New(tc.cfg, services.Env{BZID: bzid, Bus: w.bus, Rows: tc.keys})
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
