package main

import (
	gobuild "go/build"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const sample = `package p

type T[V any] struct{}

func (t *T[V]) bound(a, b int, s string) bool {
	if a < b && len(s)+1 >= b {
		return s+"x" == "y"
	}
	return a-1 > 0 || s != ""
}
`

func TestMutants(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"p.go": sample, "p_test.go": sample, "p.pb.go": sample, "p_plan9.go": sample, "tagged.go": "//go:build never\n\n" + sample} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := mutants(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		if m.fn != "T.bound" || m.file != "p.go" {
			t.Errorf("%+v", m)
		}
		got = append(got, m.from+" "+m.to)
		out := m.replace([]byte(sample))
		if len(out)-len(sample) != len(m.to)-len(m.from) || !strings.HasPrefix(out[m.offset:], m.to) {
			t.Errorf("%s: %s", m.id(), out)
		}
	}
	slices.Sort(got)
	// The + that joins texts has no other sign.
	want := []string{"!= ==", "&& ||", "+ -", "- +", "< <=", "== !=", "> >=", ">= >", "|| &&"}
	if !slices.Equal(got, want) {
		t.Errorf("mutants %q, want %q", got, want)
	}
}

// Operators that are alike on one line are still two mutants, each with a name of its own.
func TestAlikeOnOneLine(t *testing.T) {
	found, err := mutantsOf("p/p.go", []byte("package p\n\nfunc f(a, b, c int) bool {\n\treturn a < b && b < c\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range found {
		got = append(got, m.id())
	}
	want := []string{
		"p/p.go f < -> <=: return a < b && b < c",
		"p/p.go f && -> ||: return a < b && b < c",
		"p/p.go f < -> <= (2): return a < b && b < c",
	}
	if !slices.Equal(got, want) {
		t.Errorf("mutants %q, want %q", got, want)
	}
}

func TestFirstFailure(t *testing.T) {
	for out, want := range map[string]string{
		"=== RUN\n--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/b (0.01s)\n": "TestA",
		"x\npanic: runtime error: index out of range\n":                     "panic: runtime error: index out of range",
		"": "it ended early",
	} {
		if got := firstFailure(out); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}

func TestListOfEquivalentOnes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# a comment\n\nbus/x.go f < -> <=: if a < b { # both are even\n")
	known, err := readList(path)
	if err != nil || known["bus/x.go f < -> <=: if a < b {"] != "both are even" {
		t.Errorf("%v, %v", known, err)
	}
	write("bus/x.go f < -> <=: if a < b {\n")
	if _, err := readList(path); err == nil || !strings.Contains(err.Error(), "has no reason") {
		t.Errorf("without a reason: %v", err)
	}
	for _, kept := range []string{"equivalent.txt"} {
		if _, err := readList(kept); err != nil {
			t.Error(err)
		}
	}
}

// Each mutant of the list of equivalent ones is one of the code as it is, where that is built.
func TestTheListIsOfMutantsThatThereAre(t *testing.T) {
	t.Chdir("../..")
	list, err := readList("tools/mutants/equivalent.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]map[string]bool{}
	for id := range list {
		file, _, _ := strings.Cut(id, " ")
		pkg := filepath.Dir(file)
		if known[pkg] == nil {
			found, err := mutants(pkg)
			if err != nil {
				t.Fatal(err)
			}
			known[pkg] = map[string]bool{}
			for _, m := range found {
				known[pkg][m.id()] = true
			}
		}
		if built, err := gobuild.Default.MatchFile(pkg, filepath.Base(file)); err == nil && !built {
			continue
		}
		if !known[pkg][id] {
			t.Errorf("no such mutant: %s", id)
		}
	}
}

// What the tests of an internal package leave is tried by those of the package that it belongs to.
func TestTestsOf(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, pkg := range []string{"bus/log/internal/own", "bus/log/internal/none", "bus/internal/top", "bus/mem"} {
		if err := os.MkdirAll(filepath.FromSlash(pkg), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, tested := range []string{"bus/log/internal/own/own_test.go", "bus/log/log_test.go"} {
		if err := os.WriteFile(tested, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for pkg, want := range map[string][]string{
		"bus/log/internal/own": {"bus/log/internal/own", "bus/log"}, "bus/log/internal/none": {"bus/log"}, "bus/internal/top": {"bus/internal/top"}, "bus/mem": {"bus/mem"},
	} {
		if got := testsOf(filepath.FromSlash(pkg)); !slices.Equal(got, want) {
			t.Errorf("%s is tried by %s, want %s", pkg, got, want)
		}
	}
}

// The core that the Makefile names has all packages below the roles and the log, also those of
// tomorrow, and each has tests that try its mutants. What only measures has none.
func TestTheCore(t *testing.T) {
	t.Chdir("../..")
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(makefile), "\nCORE = ")
	text, _, _ = strings.Cut(text, "\nmutants:")
	pkgs, err := expand(strings.Fields(strings.ReplaceAll(text, "\\\n", " ")))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"bus", "bus/jetstream/internal/conn", "projections/zookeeper/tree", "services/ps", "services/trainer/warm", "services/modelserver/rows", "internal/wire/rowwire", "internal/model/checkpoint", "kernels/table"} {
		if !slices.Contains(pkgs, want) {
			t.Errorf("CORE has no %s", want)
		}
	}
	for _, pkg := range pkgs {
		found, err := mutants(pkg)
		if err != nil {
			t.Fatal(err)
		}
		var tests []string
		for _, by := range testsOf(pkg) {
			some, err := filepath.Glob(filepath.Join(by, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			tests = append(tests, some...)
		}
		if len(found) > 0 && len(tests) == 0 && pkg != "bus/measure" {
			t.Errorf("%s has %d mutants and no tests to notice them", pkg, len(found))
		}
	}
}

func TestExpand(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, file := range []string{"a/a.go", "a/b/b.go", "a/b/b_test.go", "a/only/x_test.go", "a/atest/a.go", "a/testdata/a.go", "a/none/c.txt", "c/c.go"} {
		if err := os.MkdirAll(filepath.Dir(filepath.FromSlash(file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.FromSlash(file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := expand([]string{"./a/...", "./c/", "a/b"})
	if want := []string{"a", filepath.FromSlash("a/b"), "c"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if _, err := expand([]string{"nowhere/..."}); err == nil {
		t.Error("a folder that is not there has packages")
	}
}

// The quick tests that reach a mutant try it together, the others one by one, each with its own limit.
func TestRuns(t *testing.T) {
	of := map[int]bool{3: true}
	c := config{limit: time.Minute}
	got := c.runs("p", "b", []timed{{"A", time.Millisecond, of}, {"B", 100 * time.Millisecond, nil}, {"C", 500 * time.Millisecond, of}, {"D", 2 * time.Second, of}, {"E", time.Hour, of}}, 3)
	want := []run{
		{pkg: "p", binary: "b", tests: []string{"A", "C"}, mutant: 3, limit: 20*time.Second + 5*501*time.Millisecond},
		{pkg: "p", binary: "b", tests: []string{"D"}, mutant: 3, limit: 30 * time.Second},
		{pkg: "p", binary: "b", tests: []string{"E"}, mutant: 3, limit: time.Minute},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := c.runs("p", "b", []timed{{"A", 1, nil}}, 3); len(got) != 0 {
		t.Errorf("nothing reaches it: %+v", got)
	}
}
