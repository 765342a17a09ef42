package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// One build of a function holds all its mutants, also those inside one another: each does what
// the changed source would, and without one it does what the source does.
func TestInstrument(t *testing.T) {
	const text = `package main

import "os"

type meters float64

func f(a, b int, m meters) bool {
	return (a+1)*2 < b-3 && // the sum
		m-1 > 2.5 || a == b
}

func main() {
	for _, x := range [][2]int{{1, 7}, {1, 8}, {2, 2}, {0, -5}, {3, 10}} {
		for _, m := range []meters{0, 3.5, 9} {
			if f(x[0], x[1], m) {
				os.Stdout.WriteString("1")
			} else {
				os.Stdout.WriteString("0")
			}
		}
	}
}
`
	dir := t.TempDir()
	run := func(binary, n string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary)
		cmd.Env = append(os.Environ(), variable+"="+n)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v: %s", binary, n, err, out)
		}
		return string(out)
	}
	made := func(name string, files ...string) string {
		t.Helper()
		binary := filepath.Join(dir, name)
		args := []string{"build", "-o", binary}
		for i, text := range files {
			path := filepath.Join(dir, name+strconv.Itoa(i)+".go")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, path)
		}
		if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return binary
	}
	found, err := mutantsOf("p/p.go", []byte(text))
	if err != nil || len(found) != 8 {
		t.Fatalf("%d mutants, %v", len(found), err)
	}
	var all []numbered
	for i, m := range found {
		all = append(all, numbered{m, i})
	}
	added, err := helpersOf([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	together := made("together", instrument([]byte(text), all), added)
	plain := run(made("plain", text), "")
	if got := run(together, "-1"); got != plain {
		t.Errorf("without a mutant: %s, want %s", got, plain)
	}
	for _, m := range all {
		want := run(made("m"+strconv.Itoa(m.n), m.replace([]byte(text))), "")
		if m.from == "||" || m.from == "&&" { // by the tree, which does not bind anew
			continue
		}
		if got := run(together, strconv.Itoa(m.n)); got != want || got == plain {
			t.Errorf("%s: %s, want %s; without it %s", m.id(), got, want, plain)
		}
	}
}

// What only the source itself can hold, such as the length of an array, has a build of its own;
// what the types do not allow has none; and the tests tell which mutants they notice.
func TestTry(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.26\n",
		"p/p.go": `package p

type text string

const size = 4

func room() int {
	var room [size + 1]byte
	return len(room)
}

func less(a, b int) bool { return a < b }

func unseen(a, b int) bool { return a <= b }

func join(a, b text) text { return a + text("x") + (b) }
`,
		"p/p_test.go": `package p

import "testing"

func TestP(t *testing.T) {
	if room() != 5 || less(1, 1) || unseen(2, 1) || join("a", "b") != "axb" {
		t.Fatal()
	}
}
`,
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	found, err := mutants("p")
	if err != nil || len(found) != 3 {
		t.Fatalf("%v, %v", found, err)
	}
	text := found[0] // that + joins texts does not show by its look
	source, err := os.ReadFile("p/p.go")
	if err != nil {
		t.Fatal(err)
	}
	text.from, text.to = "+", "-"
	text.offset = strings.LastIndex(string(source), "+")
	text.x = span{strings.LastIndex(string(source), "a +"), text.offset - 1}
	text.y = span{text.offset + 2, text.offset + 5}
	var drawn []numbered
	for i, m := range append(found, text) {
		drawn = append(drawn, numbered{m, i})
	}
	c := config{workers: 2, limit: time.Minute}
	tried, left, err := c.try(t.Context(), &builder{tests: "p", temp: t.TempDir()}, drawn)
	if err != nil || tried != 3 || len(left) != 1 || left[0].fn != "unseen" {
		t.Errorf("%d tried, %v left, %v", tried, left, err)
	}
	if err := os.WriteFile("p/p_test.go", []byte("package p\n\nimport \"testing\"\n\nfunc TestP(t *testing.T) { t.Fatal() }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.try(t.Context(), &builder{tests: "p", temp: t.TempDir()}, drawn[1:]); err == nil || !strings.Contains(err.Error(), "fail without any mutant (TestP: TestP)") {
		t.Errorf("tests that fail anyway: %v", err)
	}
}

// The mutants that an internal package's own tests leave are tried by its owner's, with the owner's
// own, and counted once.
func TestOwnersTestsTryInternalMutants(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                 "module example.org/m\n\ngo 1.26\n",
		"none.txt":               "",
		"p/p.go":                 "package p\n\nimport \"example.org/m/p/internal/q\"\n\nfunc Least(a, b int) bool { return a > 0 && q.Less(a, b) }\n",
		"p/p_test.go":            "package p\n\nimport \"testing\"\n\nfunc TestLeast(t *testing.T) {\n\tif Least(1, 1) || !Least(1, 2) || Least(0, 1) {\n\t\tt.Fatal()\n\t}\n}\n",
		"p/internal/q/q.go":      "package q\n\nfunc Less(a, b int) bool { return a < b }\n\nfunc More(a, b int) bool { return a > b }\n\nfunc Same(a, b int) bool { return a == b }\n",
		"p/internal/q/q_test.go": "package q\n\nimport \"testing\"\n\nfunc TestMore(t *testing.T) {\n\tif More(1, 1) {\n\t\tt.Fatal()\n\t}\n}\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	c := config{seed: 1, n: 50, workers: 2, list: "none.txt", limit: time.Minute}
	c.want = 0.8 // of five one is left: Same is tested by nobody
	if err := c.run(t.Context(), []string{"p/..."}); err != nil {
		t.Error(err)
	}
	c.want = 0.81
	if err := c.run(t.Context(), []string{"p/..."}); err == nil || !strings.Contains(err.Error(), "80 % were noticed") {
		t.Errorf("of five mutants one is left: %v", err)
	}
}
