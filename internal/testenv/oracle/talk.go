package oracle

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// Talk is a program that is told lines and says lines.
type Talk struct {
	*bufio.Scanner // of what it says
	in             io.WriteCloser
}

// Run starts cmd, which dies with the test, or before it is silent for ever.
func Run(t testing.TB, cmd *exec.Cmd) Talk {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(3*wait.Patience, func() { _ = cmd.Process.Kill() }) // so that reading ends
	t.Cleanup(func() {
		watchdog.Stop()
		_ = cmd.Process.Kill() // most often gone already
		_ = cmd.Wait()
	})
	return Talk{bufio.NewScanner(out), in}
}

// Say tells it a line.
func (k Talk) Say(t testing.TB, line string) {
	t.Helper()
	if _, err := io.WriteString(k.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// Line is what it says next.
func (k Talk) Line(t testing.TB) string {
	t.Helper()
	if !k.Scan() {
		t.Fatalf("the program says no more: %v", k.Err())
	}
	return k.Text()
}

// Next is what it says next, a JSON object.
func (k Talk) Next(t testing.TB) (said map[string]any) {
	t.Helper()
	line := k.Line(t)
	if err := json.Unmarshal([]byte(line), &said); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return said
}

// Want fails unless that is what it says next.
func (k Talk) Want(t testing.TB, want map[string]any) {
	t.Helper()
	if diff := cmp.Diff(want, k.Next(t)); diff != "" {
		t.Fatal(diff)
	}
}

// Until reads lines up to one that contains text, and returns them all.
func (k Talk) Until(t testing.TB, text string) string {
	t.Helper()
	var b strings.Builder
	for k.Scan() {
		b.WriteString(k.Text() + "\n")
		if strings.Contains(k.Text(), text) {
			return b.String()
		}
	}
	t.Fatalf("the program never said %q: %v\n%s", text, k.Err(), b.String())
	return ""
}
