package modelserver

import (
	"crypto/tls"
	"fmt"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/services"
)

// portKeys are the TLS of the three ports; nil: plain text.
type portKeys struct{ grpc, rest, rows *tls.Config }

// openPorts refuses ports that other machines can reach and nothing protects.
func openPorts(cfg Config, env services.Env) (k portKeys, err error) {
	const role = "modelserver"
	rows := mtls.Port{Role: role, Name: "rows", Addr: cfg.Rows, TLS: env.Rows, Keys: "--rows-tls", Insecure: cfg.InsecureRows, Switch: "--insecure-rows"}
	grpc := mtls.Port{Role: role, Name: "grpc, by which models are configured,", Addr: cfg.GRPC, Own: cfg.GRPCTLS, Shared: env.TLS,
		Keys: "--grpc-tls", Mutual: true, Insecure: cfg.InsecureGRPC, Switch: "--insecure-grpc"}
	rest := mtls.Port{Role: role, Name: "http", Addr: cfg.HTTP, Own: cfg.RESTTLS, Shared: env.TLS, Keys: "--rest-tls", Insecure: cfg.InsecureREST, Switch: "--insecure-rest"}
	k.rows = env.Rows
	if err := rows.Check(); err != nil {
		return k, err
	}
	ssl, err := newTLS(cfg.SSLConfigFile)
	switch {
	case err != nil:
		return k, fmt.Errorf("%s: %w", role, err)
	case ssl == nil:
		k.grpc, err = grpc.Config()
	case cfg.GRPCTLS != (mtls.Files{}):
		err = fmt.Errorf("%s: --ssl-config-file and --grpc-tls-cert both name the gRPC port's certificate: give one of them", role)
	default: // --insecure-grpc lets callers without a certificate in from other machines
		grpc.TLS, k.grpc = ssl, ssl
		if err = grpc.Check(); err != nil {
			err = fmt.Errorf("%w (in --ssl-config-file: custom_ca with client_verify)", err)
		}
	}
	if err != nil {
		return k, err
	}
	k.rest, err = rest.Config()
	return k, err
}

// credentials are those of the gRPC port.
func (k portKeys) credentials() credentials.TransportCredentials {
	if k.grpc == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(k.grpc)
}
