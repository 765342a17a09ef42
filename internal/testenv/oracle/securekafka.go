package oracle

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/certs"
)

// The user whom a [SecureKafka] knows, by each mechanism with a password of its own.
const (
	KafkaUser = "alice"
	KafkaPass = "plain secret"
	Scram256  = "secret of 256 bits"
	Scram512  = "secret of 512 bits"
)

// SecureKafka is an Apache Kafka broker that lets in those it knows alone.
type SecureKafka struct {
	*Process
	Mutual string // address: by a certificate, over TLS
	SASL   string // by a password, over TLS
	Scram  string // by a password that is never sent, in the clear
}

// StartSecureKafka starts one whose certificates the authority signs. It ends with the test.
func StartSecureKafka(t testing.TB, a *certs.Authority) *SecureKafka {
	t.Helper()
	files := a.Issue("broker")
	store := filepath.Join(t.TempDir(), "broker.pem")
	key, err := os.ReadFile(files.Key)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(key)
	parsed, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := x509.MarshalPKCS8PrivateKey(parsed) // the only form that Kafka reads
	if err != nil {
		t.Fatal(err)
	}
	chain, err := os.ReadFile(files.Cert)
	if err != nil {
		t.Fatal(err)
	}
	write(t, store, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: packed}))+string(chain))
	mutual, sasl, scram := freePort(t), freePort(t), freePort(t)
	const module = "org.apache.kafka.common.security"
	listeners := fmt.Sprintf(`listeners=SSL://127.0.0.1:%[1]d,SASL_SSL://127.0.0.1:%[2]d,SASL_PLAINTEXT://127.0.0.1:%[3]d,CONTROLLER://127.0.0.1:%%d
advertised.listeners=SSL://127.0.0.1:%[1]d,SASL_SSL://127.0.0.1:%[2]d,SASL_PLAINTEXT://127.0.0.1:%[3]d
listener.security.protocol.map=SSL:SSL,SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=SSL
ssl.keystore.type=PEM
ssl.keystore.location=%[4]s
ssl.truststore.type=PEM
ssl.truststore.location=%[5]s
listener.name.ssl.ssl.client.auth=required
listener.name.sasl_ssl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config=%[6]s.plain.PlainLoginModule required user_%[7]s="%[8]s";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=%[6]s.scram.ScramLoginModule required;
listener.name.sasl_plaintext.sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config=%[6]s.scram.ScramLoginModule required;
`, mutual, sasl, scram, store, files.CA, module, KafkaUser, KafkaPass)
	p := startKafka(t, sasl, listeners,
		"--add-scram", fmt.Sprintf("SCRAM-SHA-256=[name=%s,password=%s]", KafkaUser, Scram256),
		"--add-scram", fmt.Sprintf("SCRAM-SHA-512=[name=%s,password=%s]", KafkaUser, Scram512))
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	return &SecureKafka{Process: p, Mutual: at(mutual), SASL: at(sasl), Scram: at(scram)}
}
