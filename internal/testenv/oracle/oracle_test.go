package oracle_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

func TestServersStart(t *testing.T) {
	t.Run("kafka", func(t *testing.T) { oracle.Kafka(t) })
	t.Run("hdfs", func(t *testing.T) { oracle.HDFS(t) })
	t.Run("zookeeper", func(t *testing.T) {
		zk := oracle.ZooKeeper(t)
		if out := oracle.ZKCli(t, zk.Addr, "create /a hello\nget /a\nquit\n"); !strings.Contains(out, "hello") {
			t.Fatalf("zkCli answered\n%s", out)
		}
	})
	t.Run("nats", func(t *testing.T) {
		s := oracle.NATSServer(t)
		if out, err := exec.Command(oracle.NATS(t), "-s", s.URL, "stream", "ls").CombinedOutput(); err != nil {
			t.Fatalf("nats stream ls: %v\n%s", err, out)
		}
	})
	t.Run("kubernetes", func(t *testing.T) {
		if out := oracle.StartKubernetes(t).MustKubectl(t, "", "version"); !strings.Contains(out, "Server Version: v1.34") {
			t.Fatalf("kubectl version answered\n%s", out)
		}
	})
	t.Run("curator", func(t *testing.T) {
		zk := oracle.ZooKeeper(t, "-Dzookeeper.extendedTypesEnabled=true")
		if out := oracle.CuratorRecipes(t, zk.Addr); !strings.HasSuffix(out, "transaction ok\n") {
			t.Fatalf("Curator's recipes printed\n%s", out)
		}
	})
	t.Run("python", func(t *testing.T) {
		out, err := exec.Command(oracle.Python(t), "-c", "import kazoo, tensorflow, tensorflow_serving; print(tensorflow.__version__)").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "2.16") {
			t.Fatalf("python: %v\n%s", err, out)
		}
	})
}
