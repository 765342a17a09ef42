package machine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/ps/machine"
)

// A command that does not end in time leaves nobody behind whom it has started.
func TestACommandIsEndedWithItsChildren(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	c := machine.Check{Command: `sleep 1000 & echo $! >"$PID_FILE"; wait`, Env: []string{"PID_FILE=" + file}, Timeout: 500 * time.Millisecond}
	if f := c.Look(t.Context()); f == nil || !strings.Contains(f.Reason, "did not end within") {
		t.Fatalf("a command that hangs: %+v", f)
	}
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the command's child is gone", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", strings.TrimSpace(string(pid))))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}
