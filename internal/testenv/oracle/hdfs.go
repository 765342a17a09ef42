package oracle

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// HDFS starts Apache Hadoop's file system, a namenode and a datanode in one process, and returns it;
// URL is the root of its files. It ends with the test.
func HDFS(t testing.TB) *Process {
	t.Helper()
	jars := filepath.Join(environment(t, "Apache Hadoop's file system", "hdfs", "hdfs-pom.xml"), "*")
	dir, port := t.TempDir(), freePort(t)
	up := filepath.Join(dir, "up.json") // written once the datanode has registered
	p := start(t, "Apache Hadoop's file system", port, exec.Command("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-Dtest.build.data="+filepath.Join(dir, "data"), "-cp", jars, "org.apache.hadoop.test.MiniDFSClusterManager",
		"-format", "-datanodes", "1", "-nnport", strconv.Itoa(port), "-writeDetails", up))
	wait.For(t, "the datanode", func() bool { _, err := os.Stat(up); return err == nil })
	p.URL = "hdfs://" + p.Addr
	return p
}
