package replicaregistry

import (
	"encoding/xml"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// kazooDifferences are kazoo's own tests that do not pass here.
var kazooDifferences = []difference{
	{"test_client.TestClient.test_create_large_value", tooLarge},
	{"test_gevent_handler.TestGeventClient.test_create_large_value", tooLarge},
	{"test_eventlet_handler.TestEventletClient.test_create_large_value", tooLarge},
	{"test_client.TestClient.test_update_host_list", threeServers},
	{"test_gevent_handler.TestGeventClient.test_update_host_list", threeServers},
	{"test_eventlet_handler.TestEventletClient.test_update_host_list", threeServers},
	{"test_connection.TestReadOnlyMode.test_read_only", threeServers},
	{"test_client.TestReconfig.test_add_remove_observer", noReconfig},
	{"test_client.TestReconfig.test_bad_input", noReconfig},
	{"test_client.TestReconfig.test_no_super_auth", noReconfig},
	{"test_sasl.TestLegacySASLDigestAuthentication.test_connect_sasl_auth", noSASL},
	{"test_sasl.TestSASLDigestAuthentication.test_connect_sasl_auth", noSASL},
}

const (
	tooLarge     = "a request is as large as an event of the log, 504 KiB"
	threeServers = "it needs three members that all take sessions; a registry that does not write takes none, and there is one"
	noReconfig   = "which registries there are is no matter of the tree: reconfig is answered as by a ZooKeeper that is alone, Unimplemented"
	noSASL       = "SASL is not supported, clients show digests or certificates"
)

// kazooModules are shared out so that each share takes about as long.
var kazooModules = [][]string{
	{"test_client"},
	{"test_connection", "test_watchers", "test_sasl", "test_cache", "test_security", "test_utils", "test_hosts", "test_paths", "test_retry"},
	{"test_lock", "test_lease", "test_party", "test_barrier", "test_counter", "test_election", "test_partitioner", "test_queue", "test_interrupt"},
	{"test_gevent_handler", "test_eventlet_handler", "test_threading_handler", "test_selectors_select", "test_build", "test_exceptions"},
}

// TestOracleKazooSuite runs kazoo's own tests against registries. They are as their
// authors wrote them; only the java that starts ZooKeeper is ours.
func TestOracleKazooSuite(t *testing.T) {
	t.Parallel()
	home := oracle.KazooTests(t)
	every, err := filepath.Glob(filepath.Join(home, "lib", "python3*", "site-packages", "kazoo", "tests", "test_*.py"))
	if err != nil || len(every) == 0 {
		t.Fatalf("kazoo's tests are not in %s: %v", home, err)
	}
	for _, path := range every {
		if module := strings.TrimSuffix(filepath.Base(path), ".py"); !slices.ContainsFunc(kazooModules, func(m []string) bool { return slices.Contains(m, module) }) {
			t.Errorf("%s is in no share", module)
		}
	}
	bin, err := filepath.Abs("testdata/suites/bin")
	if err != nil {
		t.Fatal(err)
	}
	s := newStarter(t)
	run := func(tests ...string) map[string]string {
		out, came, err := runKazoo(t, s, home, filepath.Dir(every[0]), bin, tests)
		t.Logf("%v: %v\n%s", tests, err, out)
		return came
	}
	var mu sync.Mutex
	outcome := map[string]string{}
	var group sync.WaitGroup
	for _, modules := range kazooModules {
		group.Go(func() {
			var files []string
			for _, m := range modules {
				files = append(files, m+".py")
			}
			came := run(files...)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(outcome, came)
			if len(came) == 0 {
				t.Errorf("nothing came of %v", modules)
			}
		})
	}
	group.Wait()
	judge(t, outcome, kazooDifferences, func(test string) string {
		steps := strings.SplitN(test, ".", 3) // the last may have points of its own
		return run(steps[0] + ".py::" + strings.Join(steps[1:], "::"))[test]
	})
}

// runKazoo runs some of the tests in the folder, files or single ones, and says what came of each.
func runKazoo(t *testing.T, s *starter, home, folder, bin string, tests []string) (out []byte, outcome map[string]string, err error) {
	port, err := portPair(4)
	if err != nil {
		return nil, nil, err
	}
	dir := t.TempDir()
	report := filepath.Join(dir, "report.xml")
	args := []string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--timeout", "150", "--junitxml", report, "--rootdir", filepath.Dir(filepath.Dir(folder)), "--tb", "short", "--show-capture", "no"}
	for _, test := range tests {
		args = append(args, filepath.Join(folder, test))
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(home, "bin", "python"), args...)
	cmd.Dir = dir
	for _, v := range s.env(filepath.Join(home, "bin")) {
		if !strings.HasPrefix(v, "CI=") { // it leaves tests out
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "PATH="+strings.Join([]string{bin, filepath.Join(home, "bin"), os.Getenv("PATH")}, string(filepath.ListSeparator)),
		"TMPDIR="+dir, "ZOOKEEPER_VERSION=3.8.0", "ZOOKEEPER_CLASSPATH=none", "ZOOKEEPER_CLUSTER_SIZE=1", fmt.Sprintf("ZOOKEEPER_PORT_OFFSET=%d", port))
	out, err = cmd.CombinedOutput()
	raw, readErr := os.ReadFile(report)
	if readErr != nil {
		return out, nil, readErr
	}
	var suites struct {
		Cases []struct {
			Class   string    `xml:"classname,attr"`
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
			Error   *struct{} `xml:"error"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(raw, &suites); err != nil {
		return out, nil, err
	}
	outcome = map[string]string{}
	for _, c := range suites.Cases {
		what := "passed"
		switch {
		case c.Failure != nil || c.Error != nil:
			what = "failed"
		case c.Skipped != nil:
			what = "skipped"
		}
		_, class, _ := strings.Cut(c.Class, "kazoo.tests.")
		outcome[class+"."+c.Name] = what
	}
	return out, outcome, err
}

// portPair finds two free ports, the second one further by distance.
func portPair(distance int) (int, error) {
	for range 100 {
		port, err := freeport.Find()
		if err != nil {
			return 0, err
		}
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+distance)))
		if err == nil {
			return port, ln.Close()
		}
	}
	return 0, fmt.Errorf("no two ports %d apart are free", distance)
}
