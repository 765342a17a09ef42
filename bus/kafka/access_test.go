package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// secret is a file with a password in it.
func secret(t *testing.T, password string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCredentials(t *testing.T) {
	files, pass := certs.NewAuthority(t).Issue("client"), secret(t, "p")
	ca := mtls.Files{CA: files.CA}
	for _, tc := range []struct {
		c    Credentials
		says string
	}{
		{Credentials{}, ""},
		{Credentials{TLS: ca}, ""},
		{Credentials{TLS: files}, ""},
		{Credentials{TLS: ca, Mechanism: "PLAIN", User: "u", PasswordFile: pass}, ""},
		{Credentials{Mechanism: "SCRAM-SHA-256", User: "u", PasswordFile: pass}, ""},
		{Credentials{TLS: files, Mechanism: "SCRAM-SHA-512", User: "u", PasswordFile: pass}, ""},
		{Credentials{TLS: mtls.Files{Cert: files.Cert, Key: files.Key}}, "need the authorities"},
		{Credentials{TLS: mtls.Files{CA: files.CA, Cert: files.Cert}}, "its key go together"},
		{Credentials{TLS: mtls.Files{CA: pass}}, "holds no certificate"},
		{Credentials{User: "u"}, "need kafka-sasl-mechanism"},
		{Credentials{Mechanism: "PLAIN", User: "u", PasswordFile: pass}, "sends the password as it is"},
		{Credentials{Mechanism: "GSSAPI", User: "u", PasswordFile: pass}, `"GSSAPI" is not known`},
		{Credentials{Mechanism: "SCRAM-SHA-256", User: "u"}, "kafka-sasl-password-file"},
		{Credentials{Mechanism: "SCRAM-SHA-256", User: "u", PasswordFile: filepath.Join(t.TempDir(), "none")}, "no such file"},
		{Credentials{Mechanism: "SCRAM-SHA-256", User: "u", PasswordFile: secret(t, "")}, "is empty"},
	} {
		a, err := tc.c.Access()
		if tc.says == "" {
			if err != nil || (a == nil) != (tc.c == (Credentials{})) {
				t.Errorf("%+v: %v", tc.c, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v, want %q", tc.c, err, tc.says)
		}
	}
	full := Credentials{TLS: files, Mechanism: "SCRAM-SHA-512", User: "u", PasswordFile: pass}
	if got := strings.Join(full.Args(), " "); got != "--kafka-tls-ca "+files.CA+" --kafka-tls-cert "+files.Cert+" --kafka-tls-key "+files.Key+" --kafka-sasl-mechanism SCRAM-SHA-512 --kafka-sasl-user u --kafka-sasl-password-file "+pass {
		t.Error(got)
	}
}

// A broker has the time to say who it is, once it is connected to.
func TestABrokerSaysWhoItIs(t *testing.T) {
	authority := certs.NewAuthority(t)
	conf, err := authority.Issue("broker").Server(tls.NoClientCert)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	shook := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			shook <- err
			return
		}
		shook <- tls.Server(c, conf).HandshakeContext(t.Context())
		_ = c.Close()
	}()
	a, err := (&Credentials{TLS: mtls.Files{CA: authority.Issue("client").CA}}).Access()
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.dial(t.Context(), ln.Addr().String(), kafkago.ConnConfig{Topic: "ratings", Partition: 2})
	_ = ln.Close()
	if err := <-shook; err != nil {
		t.Errorf("the broker: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestOracleAccess writes to and reads from Apache Kafka over TLS, with a certificate and with passwords,
// and is let in by nothing else.
func TestOracleAccess(t *testing.T) {
	authority := certs.NewAuthority(t)
	k := oracle.StartSecureKafka(t, authority)
	client, foreign := authority.Issue("client"), certs.NewAuthority(t).Issue("stranger")
	ca := mtls.Files{CA: client.CA}
	renewed := secret(t, "wrong")
	by := func(tls mtls.Files, mechanism, password string) Credentials {
		return Credentials{TLS: tls, Mechanism: mechanism, User: oracle.KafkaUser, PasswordFile: secret(t, password)}
	}
	for _, tc := range []struct {
		name, addr string
		c          Credentials
		in         bool
	}{
		{"a certificate", k.Mutual, Credentials{TLS: client}, true},
		{"PLAIN over TLS", k.SASL, by(ca, "PLAIN", oracle.KafkaPass), true},
		{"SCRAM-SHA-512 over TLS", k.SASL, by(ca, "SCRAM-SHA-512", oracle.Scram512), true},
		{"SCRAM-SHA-256 in the clear", k.Scram, by(mtls.Files{}, "SCRAM-SHA-256", oracle.Scram256), true},
		{"no certificate", k.Mutual, Credentials{TLS: ca}, false},
		{"a stranger's certificate", k.Mutual, Credentials{TLS: mtls.Files{CA: client.CA, Cert: foreign.Cert, Key: foreign.Key}}, false},
		{"a broker that a stranger has signed", k.SASL, by(mtls.Files{CA: foreign.CA}, "PLAIN", oracle.KafkaPass), false},
		{"another password", k.SASL, by(ca, "PLAIN", "guessed"), false},
		{"another SCRAM password", k.Scram, by(mtls.Files{}, "SCRAM-SHA-256", "guessed"), false},
		{"nobody", k.SASL, Credentials{TLS: ca}, false},
		{"in the clear", k.SASL, Credentials{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := tc.c.Access()
			if err != nil {
				t.Fatal(err)
			}
			if tc.in {
				throughAccess(t, a, tc.addr)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			if got, err := a.Describe(ctx, []string{tc.addr}, "ratings"); err == nil || errors.Is(err, ErrNoTopic) || ctx.Err() != nil {
				t.Errorf("it is let in: %+v, %v", got, err)
			}
		})
	}
	c := Credentials{TLS: ca, Mechanism: "PLAIN", User: oracle.KafkaUser, PasswordFile: renewed}
	a, err := c.Access()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Describe(t.Context(), []string{k.SASL}, "ratings"); err == nil {
		t.Error("let in by a wrong password")
	}
	if err := os.WriteFile(renewed, []byte(oracle.KafkaPass), 0o600); err != nil {
		t.Fatal(err)
	}
	throughAccess(t, a, k.SASL)
}

// throughAccess makes a topic, writes a record and reads it back.
func throughAccess(t *testing.T, a *Access, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	brokers, topic := []string{addr}, "t-"+strings.ReplaceAll(strings.ReplaceAll(t.Name(), "/", "-"), "_", "-")
	if err := a.EnsureTopics(ctx, brokers, map[string]int32{topic: 2}); err != nil {
		t.Fatal(err)
	}
	w := NewWriter(WriterConfig{Brokers: brokers, Access: a})
	defer w.Close()
	for _, v := range []string{"a", "b"} {
		if _, err := w.Write(ctx, Record{Topic: topic, Partition: 1, Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	if _, ends, err := a.Scan(ctx, brokers, topic, func(r Record) error { got = append(got, string(r.Value)); return nil }); err != nil || strings.Join(got, "") != "ab" || ends[1] != 2 {
		t.Errorf("%q up to %v, %v", got, ends, err)
	}
}
