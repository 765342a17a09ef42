package replicaregistry

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// goZooKeeperDifferences are the stock client's own tests that do not pass here.
var goZooKeeperDifferences = []difference{
	{"TestIntegration_BasicCluster", "a registry that does not write takes no session"},
	{"TestIntegration_NoQuorum", "a registry needs no others to write: the log decides who does"},
}

// goZooKeeperSlow are those of them that run in soaks only: thousands of writes one by
// one, which a busy machine does not store within a session, and a create that must not be
// under way, within a session of one second, when its server is stopped.
var goZooKeeperSlow = []string{"TestIntegration_Children", "TestIntegration_SetWatchers", "TestIntegration_DNSHostProviderReconnect"}

var goTestLine = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+)`)

// TestOracleGoZooKeeperSuite runs the stock Go client's own tests against registries.
// They are as their authors wrote them; only their zkServer.sh is ours.
func TestOracleGoZooKeeperSuite(t *testing.T) {
	t.Parallel()
	bin := oracle.GoZooKeeperTests(t)
	scripts, err := filepath.Abs("testdata/suites/bin")
	if err != nil {
		t.Fatal(err)
	}
	s := newStarter(t)
	list, err := exec.CommandContext(t.Context(), bin, "-test.list", "^Test").Output()
	if err != nil {
		t.Fatal(err)
	}
	run := func(tests ...string) (outcome map[string]string) {
		cmd := exec.CommandContext(t.Context(), bin, "-test.v", "-test.timeout", "5m", "-test.run", "^("+strings.Join(tests, "|")+")$")
		cmd.Dir, cmd.Env = t.TempDir(), append(s.env(scripts), "ZOOKEEPER_BIN_PATH="+scripts)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run() // what failed is read from what it says
		outcome = map[string]string{}
		for _, name := range tests {
			outcome[name] = "did not run"
		}
		for _, m := range goTestLine.FindAllStringSubmatch(out.String(), -1) {
			outcome[m[2]] = map[string]string{"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}[m[1]]
		}
		t.Logf("%s", out.String())
		return outcome
	}
	var tests []string
	for _, name := range strings.Fields(string(list)) {
		if os.Getenv("MONOLITH_SOAK") != "" || !slices.Contains(goZooKeeperSlow, name) {
			tests = append(tests, name)
		}
	}
	var mu sync.Mutex
	outcome := map[string]string{}
	var group sync.WaitGroup
	const shares = 3
	for i := range shares {
		var mine []string
		for j := i; j < len(tests); j += shares {
			mine = append(mine, tests[j])
		}
		group.Go(func() {
			came := run(mine...)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(outcome, came)
		})
	}
	group.Wait()
	judge(t, outcome, goZooKeeperDifferences, func(test string) string { return run(test)[test] })
}
