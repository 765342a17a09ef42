package tfssupervisor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/services/tfssupervisor"
)

// child is what the exec launcher starts in the test below: this test binary.
func child(path string) {
	switch os.Getenv("SUPERVISOR_TEST_CHILD") {
	case "dies":
		fmt.Println("last words")
		os.Exit(3)
	case "silent":
		select {}
	case "model server":
		fmt.Fprintln(os.Stderr, modelServer(os.Args[1:]))
		os.Exit(6)
	case "wrapper": // it has a server of its own, and lives no longer than it is let
		inner := exec.Command(os.Args[0], path)
		inner.Env = append(os.Environ(), "SUPERVISOR_TEST_CHILD=serves")
		if err := inner.Start(); err != nil {
			os.Exit(5)
		}
		fmt.Println(inner.Process.Pid)
		select {}
	}
	if err := tfssupervisor.WriteAddrFile(path, "127.0.0.1:1", "127.0.0.1:2", "unix:///tmp/x", true); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	select {}
}

// zombie tells whether a process has ended and only waits to be noticed.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(b), ") Z ")
}

// launcher starts this test binary as a child of a mode.
func launcher(t *testing.T, mode, dir string) (tfssupervisor.Launcher, context.Context) {
	t.Helper()
	t.Setenv("SUPERVISOR_TEST_CHILD", mode)
	l, err := tfssupervisor.NewExecLauncher(tfssupervisor.Config{Container: "c", Dir: dir, Command: []string{self(t)}, ServerArgs: []string{"--grpc=:8500"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return l, ctx
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExecLauncher(t *testing.T) {
	t.Run("lives until killed", livesUntilKilled)
	t.Run("ends before it is ready", endsBeforeReady)
	t.Run("a wrapper and what it has started", wrapperEnds)
	t.Run("never ready", neverReady)
	t.Run("no such program", noSuchProgram)
	if _, err := tfssupervisor.NewExecLauncher(tfssupervisor.Config{Container: "c"}); err == nil {
		t.Error("an empty command passes")
	}
}

func livesUntilKilled(t *testing.T) {
	dir := t.TempDir()
	l, ctx := launcher(t, "serves", dir)
	s, err := l.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.GRPCAddr != "127.0.0.1:1" || s.HTTPAddr != "127.0.0.1:2" || s.RowsAddr != "unix:///tmp/x" || s.PID == os.Getpid() || s.Command[0] != self(t) || s.Command[1] != "--grpc=:8500" || !s.Secure {
		t.Errorf("server %+v", s)
	}
	s.Kill()
	if err := s.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Wait = %v", err)
	}
	if err := syscall.Kill(s.PID, 0); err == nil {
		t.Error("the child lives on")
	}
	again, err := l.Start(ctx) // over the last one's address file
	if err != nil {
		t.Fatal(err)
	}
	again.Stop()
	if err := again.Wait(); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("Wait = %v", err)
	}
}

func endsBeforeReady(t *testing.T) {
	dir := t.TempDir()
	l, ctx := launcher(t, "dies", dir)
	if _, err := l.Start(ctx); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("Start = %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "modelserver.log")); err != nil || string(b) != "last words\n" {
		t.Errorf("log %q, %v", b, err)
	}
	if _, err := l.Start(ctx); err == nil {
		t.Error("started")
	}
	if b, err := os.ReadFile(filepath.Join(dir, "modelserver.log")); err != nil || string(b) != "last words\nlast words\n" {
		t.Errorf("the log of two lives is %q, %v", b, err)
	}
}

func wrapperEnds(t *testing.T) {
	for name, end := range map[string]func(tfssupervisor.Server){
		"killed": func(s tfssupervisor.Server) { s.Kill() }, "stopped": func(s tfssupervisor.Server) { s.Stop() },
		"crashed": func(s tfssupervisor.Server) { _ = syscall.Kill(s.PID, syscall.SIGKILL) },
	} {
		dir := t.TempDir()
		l, ctx := launcher(t, "wrapper", dir)
		s, err := l.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "modelserver.log"))
		for err == nil && !strings.Contains(string(b), "\n") {
			b, err = os.ReadFile(filepath.Join(dir, "modelserver.log"))
		}
		if err != nil {
			t.Fatal(err)
		}
		inner, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		end(s)
		_ = s.Wait()
		gone := func() bool { return syscall.Kill(inner, 0) != nil || zombie(inner) }
		for deadline := time.Now().Add(timeout); !gone(); {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the server that the wrapper has started lives on", name)
			}
		}
	}
}

func neverReady(t *testing.T) {
	l, _ := launcher(t, "silent", t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Start = %v", err)
	}
}

func noSuchProgram(t *testing.T) {
	l, err := tfssupervisor.NewExecLauncher(tfssupervisor.Config{Container: "c", Dir: t.TempDir(), Command: []string{"/no/such/program"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Start(t.Context()); err == nil {
		t.Error("started")
	}
}
