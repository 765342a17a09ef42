package server

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// kazooSays is what kazoo_recipes.py prints; Apache ZooKeeper has it print the same.
var kazooSays = []map[string]any{
	{
		"seq": []any{"/app/nodes/n-0000000000", "/app/nodes/n-0000000001", "/app/nodes/n-0000000002"}, "made": []any{"/app/data", 0.0, 3.0},
		"again": true, "not_empty": true, "bad_version": true, "version": 1.0, "none": nil,
	},
	{
		"first":   []any{[]any{"data", "two", 1.0}, []any{"children", []any{"n-0000000000", "n-0000000001", "n-0000000002"}}},
		"changed": []any{"data", "three", 2.0}, "left": []any{"children", []any{"n-0000000000", "n-0000000002"}},
	},
	{"failed": []any{"RolledBackError", "BadVersionError"}, "done": []any{"/app/t1", 1.0, true}, "t1": "y"},
	{"order": []any{"a", "b"}, "contenders": []any{"a", "b"}},
	{"leaders": []any{"c", "b"}},
	{"count": "40"},
	{"private": "p", "stranger": true},
	{"gone": []any{"DELETED", "/app/nodes/n-0000000000"}},
}

// TestOracleKazooRecipes runs the recipes that Monolith used, here and on Apache
// ZooKeeper.
func TestOracleKazooRecipes(t *testing.T) {
	python := oracle.Python(t)
	for name, addr := range map[string]func(t *testing.T) string{
		"ours":      func(t *testing.T) string { h, _ := writable(t, Config{}); return h.Addr() },
		"ZooKeeper": func(t *testing.T) string { return apache(t) },
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), python, "testdata/kazoo_recipes.py", addr(t))
			lines := oracle.Run(t, cmd)
			for i, want := range kazooSays {
				if diff := cmp.Diff(want, lines.Next(t)); diff != "" {
					t.Fatalf("line %d (-want +got):\n%s", i, diff)
				}
			}
			for lines.Scan() { // to its end
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOracleZKCliWrites has Apache's command line make, change and delete.
func TestOracleZKCliWrites(t *testing.T) {
	h, _ := writable(t, Config{})
	out := oracle.ZKCli(t, h.Addr(), strings.Join([]string{
		"create /cli one", "create -e -s /cli/e- two", "create -c /cli/box", "create -t 100000 /cli/ttl x", "set -v 0 /cli three", "set -v 0 /cli four",
		"get /cli", "getAllChildrenNumber /cli", "getEphemerals /cli", "addauth digest u:p", "whoami", "setAcl /cli/box auth:u:p:cdrwa", "getAcl /cli/box",
		"addWatch -m PERSISTENT /cli/ttl", "set /cli/ttl y", "removewatches /cli/ttl", "sync /cli", "delete /cli", "deleteall /cli", "ls /", "quit",
	}, "\n")+"\n")
	for _, want := range []string{
		"Created /cli\n", "Created /cli/e-0000000000\n", "Created /cli/box\n", "Created /cli/ttl\n", "version No is not valid : /cli", "three\n", "3\n", "[/cli/e-0000000000]",
		"digest: u\n", "'digest,'u:", "type:NodeDataChanged path:/cli/ttl", "Sync is OK", "Node not empty: /cli", "[zookeeper]",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing from:\n%s", want, out)
		}
	}
}
