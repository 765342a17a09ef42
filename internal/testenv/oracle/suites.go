package oracle

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// GoZooKeeperTests builds the tests of the stock Go client, in the version that this
// module names, and returns the program.
func GoZooKeeperTests(t testing.TB) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "go-zookeeper.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", bin, "github.com/go-zookeeper/zk").CombinedOutput(); err != nil {
		t.Fatalf("build go-zookeeper's tests: %v\n%s", err, out)
	}
	return bin
}

// KazooTests is the folder of an environment whose bin/python runs kazoo's own tests.
func KazooTests(t testing.TB) string {
	t.Helper()
	return environment(t, "Python with kazoo's own tests", "kazoo", "kazoo-requirements.txt")
}
