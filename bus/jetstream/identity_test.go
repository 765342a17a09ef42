package jetstream_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// pair makes keys, and returns them with the public one.
func pair(t *testing.T, prefix nkeys.PrefixByte) (nkeys.KeyPair, string) {
	t.Helper()
	kp, err := nkeys.CreatePair(prefix)
	if err != nil {
		t.Fatal(err)
	}
	public, err := kp.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return kp, public
}

// seedFile holds a user's NKey as nsc and nk write it.
func seedFile(t *testing.T, kp nkeys.KeyPair) string {
	t.Helper()
	seed, err := kp.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return textFile(t, string(seed)+"\n")
}

func textFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "creds")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tlsConf is the part of nats-server's configuration that has it ask for certificates.
func tlsConf(f mtls.Files) string {
	return fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }\n", f.Cert, f.Key, f.CA)
}

// appends connects and appends, or says why not.
func appends(t *testing.T, cfg jetstream.Config) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	cfg.Name, cfg.BZID = t.Name(), "bustest"
	b, err := jetstream.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer b.Close()
	_, err = b.Log().Append(ctx, draft("a", "x", bus.Any))
	return err
}

// refused holds that nobody is let in this way, and why. A server that cannot be reached is
// waited for until the time is over, so an attempt has little; a busy machine gets more of them.
func refused(t *testing.T, cfg jetstream.Config, says string) {
	t.Helper()
	cfg.Name, cfg.BZID = t.Name(), "bustest"
	wait.Until(t, "a refusal that says "+says, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		b, err := jetstream.Connect(ctx, cfg)
		if err == nil {
			t.Fatalf("let in; want %q", errors.Join(b.Close(), errors.New(says)))
		}
		if !strings.Contains(err.Error(), says) {
			return err
		}
		return nil
	})
}

// A nats-server that asks for certificates and an NKey lets in who has both, and nobody else.
func TestOracleTLSAndNKey(t *testing.T) {
	authority, stranger := certs.NewAuthority(t), certs.NewAuthority(t)
	user, public := pair(t, nkeys.PrefixByteUser)
	other, _ := pair(t, nkeys.PrefixByteUser)
	s := oracle.NATSServerWith(t, tlsConf(authority.Issue("server"))+fmt.Sprintf("authorization { users: [ { nkey: %s } ] }\n", public))
	good := jetstream.Config{URL: "tls://" + s.Addr, Keys: authority.Issue("client"), CredsFile: seedFile(t, user)}
	if err := appends(t, good); err != nil {
		t.Error(err)
	}
	plain := good
	plain.URL = s.URL // the server says that it wants TLS
	if err := appends(t, plain); err != nil {
		t.Error(err)
	}
	for name, tc := range map[string]struct {
		change func(*jetstream.Config)
		says   string
	}{
		"another's key":       {func(c *jetstream.Config) { c.CredsFile = seedFile(t, other) }, "Authorization Violation"},
		"no key":              {func(c *jetstream.Config) { c.CredsFile = "" }, "Authorization Violation"},
		"no certificate":      {func(c *jetstream.Config) { c.Keys = mtls.Files{CA: c.Keys.CA} }, "certificate required"},
		"an unknown server":   {func(c *jetstream.Config) { c.Keys.CA = stranger.Issue("x").CA }, "unknown authority"},
		"no such file":        {func(c *jetstream.Config) { c.CredsFile += "x" }, "read the credentials"},
		"a file of another":   {func(c *jetstream.Config) { c.CredsFile = textFile(t, "secret") }, "begins with SU"},
		"half a certificate":  {func(c *jetstream.Config) { c.Keys.Key = "" }, "go together"},
		"no such certificate": {func(c *jetstream.Config) { c.Keys.Cert += "x" }, "load the certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tc.change(&cfg)
			refused(t, cfg, tc.says)
		})
	}
}

// A nats-server under an operator knows a user by its JWT.
func TestOracleJWT(t *testing.T) {
	operator, operatorID := pair(t, nkeys.PrefixByteOperator)
	account, accountID := pair(t, nkeys.PrefixByteAccount)
	_, systemID := pair(t, nkeys.PrefixByteAccount)
	user, userID := pair(t, nkeys.PrefixByteUser)
	encode := func(c interface {
		Encode(nkeys.KeyPair) (string, error)
	}, by nkeys.KeyPair) string {
		t.Helper()
		token, err := c.Encode(by)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	ac := jwt.NewAccountClaims(accountID)
	ac.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	oc := jwt.NewOperatorClaims(operatorID)
	oc.SystemAccount = systemID
	s := oracle.NATSServerWith(t, fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: { %s: %s, %s: %s }\n",
		encode(oc, operator), systemID, accountID, encode(ac, operator), systemID, encode(jwt.NewAccountClaims(systemID), operator)))
	token := encode(jwt.NewUserClaims(userID), account)
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		t.Fatal(err)
	}
	good := jetstream.Config{URL: s.URL, CredsFile: textFile(t, string(creds))}
	if err := appends(t, good); err != nil {
		t.Error(err)
	}
	refused(t, jetstream.Config{URL: s.URL}, "Authorization Violation")
	refused(t, jetstream.Config{URL: s.URL, CredsFile: seedFile(t, user)}, "Authorization Violation")
}

// The embedded server asks for certificates likewise, on the address that it was given.
func TestEmbeddedTLS(t *testing.T) {
	authority, stranger := certs.NewAuthority(t), certs.NewAuthority(t)
	conf, err := authority.Issue("server").Server(tls.RequireAndVerifyClientCert)
	if err != nil {
		t.Fatal(err)
	}
	s, err := natsserver.Start(natsserver.Config{Dir: t.TempDir(), Host: "127.0.0.2", TLS: conf})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !strings.HasPrefix(s.URL(), "tls://127.0.0.2:") {
		t.Errorf("clients are told %s", s.URL())
	}
	keys := authority.Issue("client")
	if err := appends(t, jetstream.Config{URL: s.URL(), Keys: keys}); err != nil {
		t.Error(err)
	}
	refused(t, jetstream.Config{URL: s.URL(), Keys: mtls.Files{CA: keys.CA}}, "certificate required")
	mine := stranger.Issue("stranger")
	mine.CA = keys.CA
	refused(t, jetstream.Config{URL: s.URL(), Keys: mine}, "certificate")
}
