package child_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/internal/process/child"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

const role = "MONOLITH_TEST_CHILD"

// TestMain is a parent that starts a child, says which, and waits.
func TestMain(m *testing.M) {
	if os.Getenv(role) == "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("sleep", "1000")
	c, err := child.Start(cmd, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(cmd.Process.Pid)
	_ = c.Wait()
}

// A parent that is killed takes its child along.
func TestAChildDiesWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), role+"=parent")
	out, err := parent.StdoutPipe()
	if err == nil {
		err = parent.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, perr := strconv.Atoi(strings.TrimSpace(line))
	if err := errors.Join(err, perr, syscall.Kill(pid, 0), parent.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed
	wait.For(t, "the child is gone", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// What is to be done after a child is done before anybody hears of its end, and its status is told.
func TestEnd(t *testing.T) {
	cleaned := false
	c, err := child.Start(exec.Command("sh", "-c", "exit 3"), func() { cleaned = true })
	if err != nil {
		t.Fatal(err)
	}
	<-c.Ended()
	var status *exec.ExitError
	if err := c.Wait(); !errors.As(err, &status) || status.ExitCode() != 3 || !cleaned {
		t.Errorf("ended with %v, cleaned up: %t", err, cleaned)
	}
	if _, err := child.Start(exec.Command("/nowhere/at/all"), func() { t.Error("it never began") }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}
