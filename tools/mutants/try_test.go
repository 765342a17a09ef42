package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A test of rapid that notices a mutant keeps no input: the next run would begin with it, and
// it lay in the tree.
func TestRapidKeepsNoInput(t *testing.T) {
	dir := t.TempDir()
	const text = `package p

import (
	"testing"

	"pgregory.net/rapid"
)

func TestFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if rapid.Int().Draw(t, "n") > 7 {
			t.Fatal("above")
		}
	})
}
`
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// The module's rapid tests a package of it that is there for the compiler alone.
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "falls", "p_test.go"): write("p_test.go", text)}})
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "falls.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay", write("overlay.json", string(list)), "-c", "-o", binary, "./falls")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pkg := t.TempDir()
	if failed, err := (run{pkg: pkg, binary: binary, mutant: -1, limit: time.Minute}).first(t.Context()); failed != "TestFalls" || err != nil {
		t.Fatalf("%q, %v: not the test that falls", failed, err)
	}
	if left, err := os.ReadDir(pkg); len(left) > 0 || err != nil {
		t.Errorf("the run left %v, %v", left, err)
	}
}
