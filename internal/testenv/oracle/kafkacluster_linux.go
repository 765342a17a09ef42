package oracle

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/hosts"
)

// The ports of each broker of a [KafkaCluster], on its machine.
const (
	kafkaPort        = "9092"
	kafkaControlPort = "9093"
)

// KafkaCluster is Apache Kafka in KRaft mode with a broker, which is a controller too, on each machine.
// Topics lie on all of them, and an ack takes all but one.
type KafkaCluster struct {
	Bootstrap []string   // addresses
	Commands  [][]string // what runs the broker of each machine
}

// KafkaOn prepares a cluster whose logs lie in that folder of each machine. Nothing runs yet.
func KafkaOn(t testing.TB, machines []*hosts.Host, dir string) (c KafkaCluster) {
	t.Helper()
	jars := filepath.Dir(need(t, "Apache Kafka", filepath.Join(Home(t), "kafka", ".complete")))
	var voters []string
	for i, h := range machines {
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, net.JoinHostPort(h.Address, kafkaControlPort)))
	}
	confs := t.TempDir()
	for i, h := range machines {
		conf := filepath.Join(confs, fmt.Sprintf("kafka-%d.properties", i+1))
		write(t, conf, fmt.Sprintf(kafkaProperties, i+1, strings.Join(voters, ","), filepath.Join(dir, "kafka"), len(machines), len(machines)-1)+fmt.Sprintf(`listeners=PLAINTEXT://%[1]s:%[2]s,CONTROLLER://%[1]s:%[3]s
advertised.listeners=PLAINTEXT://%[1]s:%[2]s
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
default.replication.factor=%[4]d
min.insync.replicas=%[5]d
replica.lag.time.max.ms=4000
`, h.Address, kafkaPort, kafkaControlPort, len(machines), len(machines)-1))
		if out, err := h.Command("java", kafkaFormat(jars, conf)...).CombinedOutput(); err != nil {
			t.Fatalf("format Kafka's storage on machine %d: %v\n%s", i, err, out)
		}
		c.Bootstrap = append(c.Bootstrap, net.JoinHostPort(h.Address, kafkaPort))
		c.Commands = append(c.Commands, append([]string{"java"}, kafkaBroker(jars, conf, 256)...))
	}
	return c
}
