package modelserver_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/modelserver"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// Whoever reaches the gRPC port may unload every model, and read any folder.
func TestPortsBeyondThisMachineAreAskedForByName(t *testing.T) {
	w := newWorld(t)
	files := certs.NewAuthority(t).Issue("server")
	encrypted := mtls.Files{Cert: files.Cert, Key: files.Key}
	for name, tc := range map[string]struct {
		cfg  modelserver.Config
		rows *tls.Config
		all  mtls.Files
		want string // in the refusal; empty: it passes
	}{
		"loopback":            {want: ""},
		"grpc":                {cfg: modelserver.Config{GRPC: "0.0.0.0:0"}, want: "--insecure-grpc"},
		"grpc by name":        {cfg: modelserver.Config{GRPC: "0.0.0.0:0", InsecureGRPC: true}},
		"grpc with keys":      {cfg: modelserver.Config{GRPC: "0.0.0.0:0", GRPCTLS: files}},
		"grpc with all keys":  {cfg: modelserver.Config{GRPC: "0.0.0.0:0"}, all: files},
		"grpc for anybody":    {cfg: modelserver.Config{GRPC: "0.0.0.0:0"}, all: encrypted, want: "--grpc-tls-ca"},
		"grpc keys and plain": {cfg: modelserver.Config{GRPCTLS: files, InsecureGRPC: true}, want: "contradict"},
		"rest":                {cfg: modelserver.Config{HTTP: ":0"}, want: "--insecure-rest"},
		"rest by name":        {cfg: modelserver.Config{HTTP: "[::]:0", InsecureREST: true}},
		"rest for anybody":    {cfg: modelserver.Config{HTTP: "[::]:0"}, all: encrypted},
		"rest not grpc":       {cfg: modelserver.Config{HTTP: "[::]:0", InsecureGRPC: true, InsecureRows: true}, want: "--insecure-rest"},
		"rows":                {cfg: modelserver.Config{Rows: "0.0.0.0:0"}, want: "--insecure-rows"},
		"rows by name":        {cfg: modelserver.Config{Rows: "0.0.0.0:0", InsecureRows: true}},
		"rows with keys":      {cfg: modelserver.Config{Rows: "0.0.0.0:0"}, rows: &tls.Config{}},
		"keys of rows":        {cfg: modelserver.Config{GRPC: "0.0.0.0:0"}, rows: &tls.Config{}, want: "--insecure-grpc"},
	} {
		tc.cfg.Container = "c"
		_, err := modelserver.New(tc.cfg, services.Env{BZID: bzid, Bus: w.bus, Rows: tc.rows, TLS: tc.all})
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// Over TLS the gRPC port answers whoever shows a certificate, and the REST port, which was
// given no authorities, whoever trusts its own; nobody is answered in plain text.
func TestPortsOverTLS(t *testing.T) {
	authority := certs.NewAuthority(t)
	w := newWorld(t)
	w.tls = authority.Issue("server")
	s := w.serve("c", func(c *modelserver.Config) { c.RESTTLS = mtls.Files{Cert: w.tls.Cert, Key: w.tls.Key} })
	if !s.GRPCSecure() {
		t.Error("the supervisor would dial the port in plain text")
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	shows, err := authority.Issue("client").Client()
	if err != nil {
		t.Fatal(err)
	}
	silent := &tls.Config{RootCAs: shows.RootCAs}
	for name, tc := range map[string]struct {
		creds credentials.TransportCredentials
		want  codes.Code
	}{
		"shows one":  {credentials.NewTLS(shows), codes.NotFound}, // the model: it has answered
		"shows none": {credentials.NewTLS(silent), codes.Unavailable},
		"plain text": {insecure.NewCredentials(), codes.Unavailable},
	} {
		c, err := grpc.NewClient(s.GRPCAddr(), grpc.WithTransportCredentials(tc.creds))
		if err != nil {
			t.Fatal(err)
		}
		_, err = tfserving.NewModelClient(c).GetModelStatus(ctx, &apis.GetModelStatusRequest{ModelSpec: &apis.ModelSpec{Name: "nobody"}})
		if status.Code(err) != tc.want {
			t.Errorf("gRPC, %s: %v, want %v", name, err, tc.want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	rest := func(scheme string, conf *tls.Config) (int, error) {
		road := &http.Transport{TLSClientConfig: conf}
		defer road.CloseIdleConnections()
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+s.HTTPAddr()+"/v1/models/nobody", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: road}).Do(q)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	if code, err := rest("https", silent); err != nil || code != http.StatusNotFound {
		t.Errorf("REST over TLS: %d, %v", code, err)
	}
	if code, err := rest("https", &tls.Config{}); err == nil {
		t.Errorf("a client that trusts nobody we know: %d", code)
	}
	if code, err := rest("http", nil); err == nil && code != http.StatusBadRequest {
		t.Errorf("REST in plain text: %d, %v", code, err)
	}
}
