package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	kafkasasl "github.com/segmentio/kafka-go/sasl"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/monolith-go/monolith/internal/mtls"
)

// Access is how brokers are spoken to.
type Access struct {
	tls  *tls.Config    // nil: in the clear
	sasl sasl.Mechanism // nil: by nobody
}

// Plain is access over TCP in the clear, by nobody in particular.
var Plain *Access

// Credentials are the flags of an Access. Secrets come from files.
type Credentials struct {
	TLS          mtls.Files // the authorities alone, or with a certificate of this client
	Mechanism    string     // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; empty: none
	User         string
	PasswordFile string // read at each connection, so that it may be renewed
}

// Register binds the flags.
func (c *Credentials) Register(fs *pflag.FlagSet) {
	fs.StringVar(&c.TLS.CA, "kafka-tls-ca", c.TLS.CA, "`file` with the authorities (PEM) of the Kafka brokers' certificates, with which they are spoken to over TLS; empty: in the clear")
	fs.StringVar(&c.TLS.Cert, "kafka-tls-cert", c.TLS.Cert, "`file` with the certificate (PEM) that Kafka brokers are shown; empty: none. Read anew when it changes")
	fs.StringVar(&c.TLS.Key, "kafka-tls-key", c.TLS.Key, "`file` with its private key (PEM)")
	fs.StringVar(&c.Mechanism, "kafka-sasl-mechanism", c.Mechanism, "how Kafka brokers are told who this is: PLAIN, over TLS alone, SCRAM-SHA-256 or SCRAM-SHA-512; empty: they are not")
	fs.StringVar(&c.User, "kafka-sasl-user", c.User, "the user's `name` there")
	fs.StringVar(&c.PasswordFile, "kafka-sasl-password-file", c.PasswordFile, "`file` with the user's password, without the line's end; read anew at each connection")
}

// Args are the flags that hand the same to another process.
func (c *Credentials) Args() (args []string) {
	for _, f := range [][2]string{
		{"--kafka-tls-ca", c.TLS.CA}, {"--kafka-tls-cert", c.TLS.Cert}, {"--kafka-tls-key", c.TLS.Key},
		{"--kafka-sasl-mechanism", c.Mechanism}, {"--kafka-sasl-user", c.User}, {"--kafka-sasl-password-file", c.PasswordFile},
	} {
		if f[1] != "" {
			args = append(args, f[0], f[1])
		}
	}
	return args
}

// Access reads the files; no flags at all are nil.
func (c *Credentials) Access() (*Access, error) {
	if *c == (Credentials{}) {
		return nil, nil
	}
	a := &Access{}
	var err error
	if c.TLS != (mtls.Files{}) {
		if c.TLS.CA == "" {
			return nil, errors.New("kafka-tls-cert and kafka-tls-key need the authorities of the brokers' certificates: name them with kafka-tls-ca")
		}
		if a.tls, err = c.TLS.Client(); err != nil {
			return nil, fmt.Errorf("kafka-tls: %w", err)
		}
	}
	if c.Mechanism == "" {
		if c.User != "" || c.PasswordFile != "" {
			return nil, errors.New("kafka-sasl-user and kafka-sasl-password-file need kafka-sasl-mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
		}
		return a, nil
	}
	if c.User == "" || c.PasswordFile == "" {
		return nil, errors.New("kafka-sasl-mechanism needs kafka-sasl-user and kafka-sasl-password-file")
	}
	if _, err := c.password(); err != nil {
		return nil, err
	}
	switch c.Mechanism {
	case "PLAIN":
		if a.tls == nil {
			return nil, errors.New("kafka-sasl-mechanism PLAIN sends the password as it is: give kafka-tls-ca too, or use SCRAM-SHA-512")
		}
		a.sasl = plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := c.password()
			return plain.Auth{User: c.User, Pass: password}, err
		})
	case "SCRAM-SHA-256":
		a.sasl = scram.Sha256(c.scram)
	case "SCRAM-SHA-512":
		a.sasl = scram.Sha512(c.scram)
	default:
		return nil, fmt.Errorf("kafka-sasl-mechanism %q is not known: give PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", c.Mechanism)
	}
	return a, nil
}

func (c *Credentials) scram(context.Context) (scram.Auth, error) {
	password, err := c.password()
	return scram.Auth{User: c.User, Pass: password}, err
}

func (c *Credentials) password() (string, error) {
	raw, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("kafka-sasl-password-file: %w", err)
	}
	password := strings.TrimRight(string(raw), "\r\n")
	if password == "" {
		return "", fmt.Errorf("kafka-sasl-password-file: %s is empty", c.PasswordFile)
	}
	return password, nil
}

// options are those of a client.
func (a *Access) options() (opts []kgo.Opt) {
	if a == nil {
		return nil
	}
	if a.tls != nil {
		opts = append(opts, kgo.DialTLSConfig(a.tls))
	}
	if a.sasl != nil {
		opts = append(opts, kgo.SASL(a.sasl))
	}
	return opts
}

// dial connects to the broker that leads a partition.
func (a *Access) dial(ctx context.Context, addr string, of kafkago.ConnConfig) (*kafkago.Conn, error) {
	tcp := net.Dialer{Timeout: dialTimeout}
	if a == nil {
		c, err := tcp.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return kafkago.NewConnWith(c, of), nil
	}
	host, port, err := splitAddr(addr)
	if err != nil {
		return nil, err
	}
	d := kafkago.Dialer{ClientID: of.ClientID, Timeout: dialTimeout + answerTimeout, TLS: a.tls, DialFunc: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := tcp.DialContext(ctx, network, addr)
		if err == nil {
			err = c.SetDeadline(time.Now().Add(answerTimeout)) // of who this is; each request sets its own
		}
		return c, err
	}}
	if a.sasl != nil {
		d.SASLMechanism = mechanism{a.sasl, addr}
	}
	return d.DialPartition(ctx, "tcp", addr, kafkago.Partition{Topic: of.Topic, ID: of.Partition, Leader: kafkago.Broker{Host: host, Port: port, ID: of.Broker}})
}

func splitAddr(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = net.LookupPort("tcp", text)
	}
	return host, port, err
}

// mechanism is one of franz-go's as kafka-go has them.
type mechanism struct {
	sasl.Mechanism
	addr string
}

// Start begins an authentication.
func (m mechanism) Start(ctx context.Context) (kafkasasl.StateMachine, []byte, error) {
	s, first, err := m.Authenticate(ctx, m.addr)
	return exchange{s}, first, err
}

type exchange struct{ sasl.Session }

// Next answers the broker.
func (e exchange) Next(_ context.Context, challenge []byte) (done bool, response []byte, err error) {
	return e.Challenge(challenge)
}
