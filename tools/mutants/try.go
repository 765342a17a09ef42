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

// test runs the tests in binary with mutant n on, -1: none, and says what failed first; ""
// when nothing did.
func test(parent context.Context, pkg, binary string, n int, limit time.Duration) (failed string, err error) {
	binary, err = filepath.Abs(binary)
	if err != nil {
		return "", err
	}
	// A test that is killed leaves its folders behind.
	folders, err := os.MkdirTemp(filepath.Dir(binary), "t")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folders)
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	var out bytes.Buffer
	run := exec.CommandContext(ctx, binary, "-test.short", "-test.failfast")
	run.Dir, run.Stdout, run.Stderr = pkg, &out, &out
	run.Env = append(os.Environ(), "TMPDIR="+folders, fmt.Sprintf("%s=%d", variable, n))
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with the servers that tests start
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
	run.WaitDelay = 5 * time.Second
	err = run.Run()
	if run.Process != nil {
		_ = run.Cancel() // what the tests started and did not end
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
