package main

import (
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// TestHeapFiles has every process of a system write heap profiles where the environment of the first
// says: roles, and model servers, which are their children, to files of their own.
func TestHeapFiles(t *testing.T) {
	into := t.TempDir()
	t.Setenv("HEAPPROFILE", into)
	t.Setenv("HEAP_PROFILE_TIME_INTERVAL", "1")
	c := startChild(t, "up", "--processes", "--dir", filepath.Join(t.TempDir(), "data"), "--replicas", "1")
	name := regexp.MustCompile(`^(hprof(_\d+)?)\.\d{4,}\.heap$`)
	written := map[string]int{} // files of a process
	until(t, c, "every process to write", func() bool {
		files, err := os.ReadDir(into)
		if err != nil {
			t.Fatal(err)
		}
		clear(written)
		for _, f := range files {
			m := name.FindStringSubmatch(f.Name())
			if m == nil {
				t.Fatalf("a profile is called %s", f.Name())
			}
			written[m[1]]++
		}
		return len(written) >= 1+11+3 && len(descendants(c.cmd.Process.Pid)) >= 11+3
	})
	if written["hprof"] == 0 {
		t.Errorf("the first process wrote none: %v", written)
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.wait(t, time.Minute); err != nil {
		t.Errorf("the end: %v\n%s", err, tail(c.err.String()))
	}
	t.Setenv("HEAP_PROFILE_TIME_INTERVAL", "often")
	wrong := startChild(t, "portal")
	_ = wrong.wait(t, time.Minute)
	if code := wrong.cmd.ProcessState.ExitCode(); code != exitUsage {
		t.Errorf("an interval that is no number: exit %d: %s", code, wrong.err.String())
	}
}
