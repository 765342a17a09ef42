package modelserver_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/wire/inferencepb"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/modelserver"

	"github.com/wamuir/graft/tensorflow/serving/config_go_proto"
)

func fileText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// sslConfig is an SSLConfig as a file, with the PEM itself in it.
func sslConfig(t *testing.T, of mtls.Files, verify bool, change ...func(*config_go_proto.SSLConfig)) string {
	t.Helper()
	c := &config_go_proto.SSLConfig{ServerKey: fileText(t, of.Key), ServerCert: fileText(t, of.Cert), CustomCa: fileText(t, of.CA), ClientVerify: verify}
	for _, f := range change {
		f(c)
	}
	text, err := prototext.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return textFile(t, string(text))
}

// The gRPC port is encrypted, and asks callers who they are where it is told to.
func TestTLSOfTheGRPCPort(t *testing.T) {
	authority, stranger := certs.NewAuthority(t), certs.NewAuthority(t)
	server, friend, other := authority.Issue("server"), authority.Issue("friend"), stranger.Issue("other")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(fileText(t, server.CA)))
	as := func(f mtls.Files) credentials.TransportCredentials {
		c := &tls.Config{RootCAs: roots}
		if f != (mtls.Files{}) {
			pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
			if err != nil {
				t.Fatal(err)
			}
			// Sent whoever is asked for, as a caller does who hopes to be let in.
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		return credentials.NewTLS(c)
	}
	w := newWorld(t)
	for _, verify := range []bool{false, true} {
		name := map[bool]string{false: "open", true: "asking"}[verify]
		s := w.serve(name, func(c *modelserver.Config) { c.SSLConfigFile = sslConfig(t, server, verify) })
		for who, tc := range map[string]struct {
			creds credentials.TransportCredentials
			ok    bool
		}{
			"nobody":     {as(mtls.Files{}), !verify},
			"a friend":   {as(friend), true},
			"a stranger": {as(other), !verify},
			"plain text": {insecure.NewCredentials(), false},
		} {
			cc, err := grpc.NewClient(s.GRPCAddr(), grpc.WithTransportCredentials(tc.creds))
			if err != nil {
				t.Fatal(err)
			}
			live, err := inferencepb.NewGRPCInferenceServiceClient(cc).ServerLive(testContext(t), &inferencepb.ServerLiveRequest{})
			if tc.ok && !live.GetLive() || !tc.ok && status.Code(err) != codes.Unavailable {
				t.Errorf("%s, %s: %v, %v", name, who, live, err)
			}
			_ = cc.Close()
		}
	}
}

// A file that cannot be taken ends the start, and no key is told.
func TestWrongSSLConfig(t *testing.T) {
	of := certs.NewAuthority(t).Issue("server")
	for says, path := range map[string]string{
		"no certificate and its key in PEM":        sslConfig(t, of, false, func(c *config_go_proto.SSLConfig) { c.ServerKey = "" }),
		"custom_ca holds no certificate":           sslConfig(t, of, false, func(c *config_go_proto.SSLConfig) { c.CustomCa = "x" }),
		"name it in custom_ca":                     sslConfig(t, of, true, func(c *config_go_proto.SSLConfig) { c.CustomCa = "" }),
		"is no SSLConfig in text form":             textFile(t, `server_key: "secret" oops`),
		"no such file":                             "/nowhere/ssl.config",
		"--ssl-config-file with client_verify, or": sslConfig(t, of, false),
	} {
		_, err := modelserver.New(modelserver.Config{Container: "c", GRPC: "0.0.0.0:0", SSLConfigFile: path}, services.Env{})
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "oops") {
			t.Errorf("%v, want %q", err, says)
		}
	}
	w := newWorld(t)
	cfg := modelserver.Config{Container: "c", GRPC: "0.0.0.0:0", SSLConfigFile: sslConfig(t, of, true)}
	if _, err := modelserver.New(cfg, services.Env{BZID: bzid, Bus: w.bus}); err != nil {
		t.Errorf("callers prove who they are: %v", err)
	}
}
