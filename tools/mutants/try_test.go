package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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

// Sockets have names of some hundred bytes: folders of tests are short, wherever their binary lies.
func TestTestsHaveRoomForSockets(t *testing.T) {
	if os.Getenv(reached) != "" { // in the run below
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "rows.sock"))
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	if err := os.Mkdir(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(deep, "mutants.test")
	if err := os.Symlink(self, binary); err != nil {
		t.Fatal(err)
	}
	if failed, err := (run{pkg: ".", binary: binary, tests: []string{t.Name()}, mutant: -1, reached: "here", limit: time.Minute}).first(t.Context()); failed != "" || err != nil {
		t.Error(failed, err)
	}
}

// What a run leaves behind is ended with it, also in a process group of its own.
func TestNothingIsLeftOfARun(t *testing.T) {
	if path := os.Getenv(reached); path != "" { // in the run below
		left := exec.Command("sleep", "1000")
		left.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := left.Start(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, fmt.Append(nil, left.Process.Pid), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("nothing tells the environment of a process here")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "pid")
	if failed, err := (run{pkg: ".", binary: self, tests: []string{t.Name()}, mutant: -1, reached: path, limit: time.Minute}).first(t.Context()); failed != "" || err != nil {
		t.Fatal(failed, err)
	}
	pid, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := os.ReadFile(filepath.Join("/proc", string(pid), "cmdline")); err == nil && strings.HasPrefix(string(line), "sleep") {
		t.Errorf("process %s is left", pid)
	}
}
