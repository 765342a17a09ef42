package replicaregistry

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// Apache Curator, unmodified, finds what its recipes need. That they say the same of
// Apache ZooKeeper is tested where the program lies.
func TestOracleCurator(t *testing.T) {
	t.Parallel()
	const want = "mutex ok\nlatch ok\ncaches ok\npersistent ok\ntransaction ok\n"
	if got := oracle.CuratorRecipes(t, openHarness(t, Config{}).ZKAddr()); !strings.HasSuffix(got, want) {
		t.Errorf("Curator's recipes printed\n%s", got)
	}
}
