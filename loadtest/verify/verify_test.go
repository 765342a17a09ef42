package verify

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/mtls"
)

// Rows ports are shown the certificate that is named for them, or that of NATS where it does for both ends.
func TestRowKeys(t *testing.T) {
	rows := []string{"--rows-tls-cert", "r.pem", "--rows-tls-key", "r.key", "--rows-tls-ca", "ca"}
	nats := []string{"--nats-cert", "n.pem", "--nats-key", "n.key", "--nats-ca", "ca"}
	for name, tc := range map[string]struct {
		args []string
		want mtls.Files
	}{
		"plain text":           {nil, mtls.Files{}},
		"NATS's":               {nats, mtls.Files{Cert: "n.pem", Key: "n.key", CA: "ca"}},
		"of one end alone":     {nats[4:], mtls.Files{}},
		"its own":              {rows, mtls.Files{Cert: "r.pem", Key: "r.key", CA: "ca"}},
		"its own, not NATS's":  {append(rows, nats...), mtls.Files{Cert: "r.pem", Key: "r.key", CA: "ca"}},
		"without an authority": {nats[:4], mtls.Files{}},
	} {
		var c Config
		fs := pflag.NewFlagSet("verify", pflag.ContinueOnError)
		c.Register(fs)
		if err := fs.Parse(tc.args); err != nil || c.rowKeys() != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", name, c.rowKeys(), err, tc.want)
		}
	}
}
