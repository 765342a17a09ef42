package structure

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReachability holds that each function of the tree is reached by cmd/monolith with
// its benchmarks left out: what no program reaches is not built. Suites of contracts,
// which tests of several packages call, and what stands in for machines in tests are
// exempt as packages.
func TestReachability(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the call graph of the whole program")
	}
	tool := filepath.Join(t.TempDir(), "deadcode")
	if out, err := exec.Command("go", "build", "-o", tool, "golang.org/x/tools/cmd/deadcode").CombinedOutput(); err != nil {
		t.Fatalf("build deadcode: %v\n%s", err, out)
	}
	cmd := exec.Command(tool, "-json", "-tags", "nobench", "./cmd/monolith")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("deadcode: %v", err)
	}
	var found []struct {
		Path  string
		Funcs []struct {
			Name      string
			Generated bool
		}
	}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	excused, used := exceptions(t, "dead"), map[string]bool{}
	mark := func(what string) bool {
		if excused[what] {
			used[what] = true
		}
		return excused[what]
	}
	for _, p := range found {
		path := strings.TrimPrefix(p.Path, module)
		for _, f := range p.Funcs {
			if f.Generated || mark(path) || mark(path+"."+f.Name) {
				continue
			}
			t.Errorf("%s.%s: no program reaches it; wire it, delete it, or move it to the tests that need it", path, f.Name)
		}
	}
	for path := range unlinked(t) {
		if !serves(path) && !mark(path) {
			t.Errorf("%s: no program contains it", path)
		}
	}
	unused(t, excused, used)
}

// serves says whether a package is there for tests or benchmarks: a contract's suite, what
// stands in for machines, or what loads and compares.
func serves(path string) bool {
	return strings.HasSuffix(path, "test") || within(path, "internal/testenv") ||
		within(path, "loadtest/bench") || within(path, "loadtest/peers") || within(path, "loadtest/zkload")
}

// unlinked are the packages that the program does not contain.
func unlinked(t *testing.T) map[string]bool {
	t.Helper()
	cmd := exec.Command("go", "list", "-tags", "nobench", "-deps", "./cmd/monolith")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps: %v", err)
	}
	all := map[string]bool{}
	for _, p := range packages(t) {
		all[strings.TrimPrefix(p.ImportPath, module)] = true
	}
	for _, path := range strings.Fields(string(out)) {
		delete(all, strings.TrimPrefix(path, module))
	}
	return all
}
