package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// run is of the tests in a binary.
type run struct {
	pkg, binary string
	tests       []string // nil: all
	mutant      int      // that is on, -1: none
	reached     string   // file for the numbers of those that are reached; "": none
	limit       time.Duration
}

// first runs the tests and says what failed first; "" when nothing did.
func (r run) first(parent context.Context) (failed string, err error) {
	binary, err := filepath.Abs(r.binary)
	if err != nil {
		return "", err
	}
	// A test that is killed leaves its folders behind. The names of sockets in them have little room.
	folders, err := os.MkdirTemp("", "m")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folders)
	defer endLeft(folders)
	ctx, cancel := context.WithTimeout(parent, r.limit)
	defer cancel()
	var out bytes.Buffer
	args := []string{"-test.short", "-test.failfast"}
	if r.tests != nil {
		args = append(args, "-test.run=^("+strings.Join(r.tests, "|")+")$")
	}
	run := exec.CommandContext(ctx, binary, args...)
	run.Dir, run.Stdout, run.Stderr = r.pkg, &out, &out
	run.Env = append(os.Environ(), "TMPDIR="+folders, "RAPID_NOFAILFILE=true", fmt.Sprintf("%s=%d", variable, r.mutant), reached+"="+r.reached)
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with the servers that tests start
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
	run.WaitDelay = 5 * time.Second
	err = run.Run()
	if run.Process != nil {
		_ = run.Cancel() // what the tests started in its group and did not end
	}
	var exit *exec.ExitError
	switch {
	case parent.Err() != nil:
		return "", errors.New("it was stopped")
	case err == nil:
		return "", nil
	case ctx.Err() != nil:
		return "no end", nil
	case errors.Is(err, exec.ErrWaitDelay):
		return "a process is left", nil
	case errors.As(err, &exit):
		return firstFailure(out.String()), nil
	}
	return "", err
}

// firstFailure is the name of the first test that failed, or the first line of a panic.
func firstFailure(out string) string {
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			return strings.Fields(name)[0]
		}
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return strings.TrimSpace(line)
		}
	}
	return "it ended early"
}
