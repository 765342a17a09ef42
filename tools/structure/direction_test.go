// Package structure holds the floor plan: which package may import which, that every function
// is reached by a program, and how long functions and packages may be. exceptions.txt lists
// what does not hold yet, and why.
package structure

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/monolith-go/monolith/"
)

// helpers know nobody but each other; every layer may import them.
const helpers = "internal/durable internal/process/child internal/process/flags internal/process/freeport bus/groupcommit internal/process/health internal/mtls internal/process/prom internal/retry internal/tracectx internal/vfs"

// zookeeperFormat is ZooKeeper's wire format: a layer of its own below the view.
const zookeeperFormat = "projections/zookeeper/wire"

// layers says what each part of the tree may import beside itself. The longest prefix
// decides. "..." stands for everything.
var layers = map[string]string{
	"events":                       "",
	"kernels":                      "",
	"bus":                          "events " + helpers,
	"projections":                  "events bus projections internal/wire " + helpers,
	zookeeperFormat:                "",
	"projections/zookeeper/client": zookeeperFormat,
	"projections/zookeeper/zktest": zookeeperFormat + " projections/zookeeper/client",
	"docs/models":                  "", // the ready models, as files
	"internal/model":               "events kernels internal/wire docs/models " + helpers,
	"internal/input":               "events kernels internal/model internal/wire " + helpers,
	"internal/wire":                "events kernels " + helpers,
	"internal/compat":              "events kernels internal/model internal/wire " + helpers,
	"internal/compat/cli":          "...",
	"bus/groupcommit":              "",
	"internal/process":             helpers,
	"internal/vfs/vfstest":         "internal/vfs",
	"internal/testenv":             helpers,
	"internal/testenv/parsed":      "kernels internal/wire",
	"internal/host/history":        "events bus " + helpers,
	"internal/host/explain":        "events bus internal/model internal/host/history " + helpers,
	"internal/host":                "events bus projections kernels services internal",
	"services":                     "events bus projections kernels internal/model internal/input internal/wire internal/compat " + helpers,
	"loadtest":                     "events bus projections kernels internal",
	"loadtest/bench":               "...",
	"cmd":                          "...",
}

// pkg is one package as `go list` prints it.
type pkg struct {
	ImportPath string
	Imports    []string
}

// TestDirection holds that imports point one way: events <- bus <- projections <- services
// <- internal/host <- cmd, kernels <- internal/model <- services.
func TestDirection(t *testing.T) {
	excused := exceptions(t, "import")
	used := map[string]bool{}
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		for _, path := range p.Imports {
			to, ours := strings.CutPrefix(path, module)
			if !ours || allowed(from, to) {
				continue
			}
			edge := from + " -> " + to
			if excused[edge] {
				used[edge] = true
				continue
			}
			t.Errorf("%s: %s may import %q only; move the code, or the interface to its consumer", edge, layerOf(from), layers[layerOf(from)])
		}
	}
	unused(t, excused, used)
}

// TestParameterServersKnowNoStep holds that a parameter server keeps rows and variables and
// knows nothing of the steps that they come from.
func TestParameterServersKnowNoStep(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "./services/ps")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps: %v", err)
	}
	for _, path := range strings.Fields(string(out)) {
		if to := strings.TrimPrefix(path, module); to == "internal/model/runtime" || to == "kernels/layout" {
			t.Errorf("services/ps imports %s: what it shares with trainers is internal/model/modelspec", to)
		}
	}
}

// allowed says whether the package from may import the package to.
func allowed(from, to string) bool {
	layer := layerOf(from)
	switch other := strings.Split(to, "/"); {
	case strings.HasPrefix(to, "internal/testenv"):
		return within(layer, "internal/testenv") || strings.HasSuffix(from, "test") || layer == "loadtest/bench" || within(from, "loadtest/peers")
	case layer == "services" && other[0] == "services":
		own := strings.Split(from, "/")
		return len(other) == 1 || len(own) > 1 && (other[1] == own[1] || other[1] == "internal")
	case layerOf(to) == layer:
		return true
	}
	if layers[layer] == "..." {
		return true
	}
	return slices.ContainsFunc(strings.Fields(layers[layer]), func(prefix string) bool { return within(to, prefix) })
}

// layerOf is the longest prefix of layers that path lies in; a helper is its own.
func layerOf(path string) string {
	best := ""
	for layer := range layers {
		if within(path, layer) && len(layer) > len(best) {
			best = layer
		}
	}
	if best == "" && slices.Contains(strings.Fields(helpers), path) {
		return "helpers"
	}
	return best
}

func within(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// TestEveryRoomIsOnThePlan holds that no package lies outside of the layers.
func TestEveryRoomIsOnThePlan(t *testing.T) {
	for _, p := range packages(t) {
		if path := strings.TrimPrefix(p.ImportPath, module); layerOf(path) == "" {
			t.Errorf("%s is no room of the floor plan: give it one in layers", path)
		}
	}
}

// TestAllowed shows that the rules refuse what they are for.
func TestAllowed(t *testing.T) {
	for _, tc := range []struct {
		from, to string
		want     bool
	}{
		{"bus", "events/model", true},
		{"events/model", "bus", false},
		{"bus/jetstream", "projections/plan", false},
		{"services/ps", "services/trainer", false},
		{"services/ps", "services/internal/role", true},
		{"services/ps", "services", true},
		{"services/ps", "internal/host", false},
		{"services/ps", "loadtest/audit", false},
		{"services/ps", "internal/testenv/oracle", false},
		{"bus/bustest", "internal/testenv/wait", true}, // of tests alone
		{"kernels/table", "kernels/vec", true},
		{"kernels/table", "internal/model/checkpoint", false},
		{"internal/model/checkpoint", "bus", false},
		{"internal/retry", "events", false},
		{"cmd/monolith", "loadtest/demo", true},
		{"internal/host", "loadtest/demo", false},
		{"loadtest/demo", "services/ps", false},
		{"loadtest/bench", "services/ps", true},
	} {
		if got := allowed(tc.from, tc.to); got != tc.want {
			t.Errorf("%s -> %s: %v", tc.from, tc.to, got)
		}
	}
}

// packages are those of the product with their imports, tests left out.
func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// exceptions are the lines of one kind in exceptions.txt: "<kind> <what> # <reason>".
func exceptions(t *testing.T, kind string) map[string]bool {
	t.Helper()
	f, err := os.Open("exceptions.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]bool{}
	for s := bufio.NewScanner(f); s.Scan(); {
		line := s.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		what, reason, ok := strings.Cut(line, " # ")
		if !ok || strings.TrimSpace(reason) == "" {
			t.Errorf("exceptions.txt: %q gives no reason", line)
		}
		if rest, ok := strings.CutPrefix(what, kind+" "); ok {
			all[strings.TrimSpace(rest)] = true
		}
	}
	return all
}

// unused fails for exceptions that nothing needs any more.
func unused(t *testing.T, excused, used map[string]bool) {
	t.Helper()
	for what := range excused {
		if !used[what] {
			t.Errorf("exceptions.txt: %s holds now; take the line out", what)
		}
	}
}
