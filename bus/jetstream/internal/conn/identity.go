package conn

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/internal/mtls"
)

// identity are the options by which the server knows who connects, and the client the server.
// Files that change are read anew when the connection is next made.
func (c *Conn) identity() (opts []nats.Option, err error) {
	if c.cfg.CredsFile != "" {
		who, err := credentials(c.cfg.CredsFile)
		if err != nil {
			return nil, err
		}
		opts = append(opts, who)
	}
	if c.cfg.Keys == (mtls.Files{}) {
		return opts, nil
	}
	keys, err := c.cfg.Keys.Open()
	if err != nil {
		return nil, err
	}
	var show nats.TLSCertHandler // nil: nothing is shown
	if c.cfg.Keys.Cert != "" {
		show = func() (tls.Certificate, error) {
			cert, err := keys.Certificate()
			if err != nil {
				return tls.Certificate{}, err
			}
			return *cert, nil
		}
	}
	return append(opts, nats.ClientTLSConfig(show, keys.Authorities)), nil
}

// credentials are those of the file: a user's JWT with its seed, or a seed alone, whose public
// key the server's configuration names.
func credentials(file string) (nats.Option, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the credentials: %w", err)
	}
	if bytes.Contains(raw, []byte("BEGIN NATS USER JWT")) {
		return nats.UserCredentials(file), nil
	}
	seed, err := nats.NkeyOptionFromSeed(file)
	if err != nil { // without what the library says: it may quote the secret
		return nil, errors.New("the credentials in " + file + " are neither a NATS user's (nsc generate creds) nor the seed of a user's NKey, which begins with SU (nk -gen user)")
	}
	return seed, nil
}
