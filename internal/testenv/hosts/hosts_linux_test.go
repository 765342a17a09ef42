package hosts

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// echoEnv has this process answer what it is sent at an address.
const echoEnv = "MONOLITH_TEST_ECHO"

func TestMain(m *testing.M) {
	if at := os.Getenv(echoEnv); at != "" {
		fmt.Fprintln(os.Stderr, echo(at))
		os.Exit(1)
	}
	if err := Join(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leaks.Main(m)
}

func echo(at string) error {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() { _, _ = io.Copy(c, c) }()
	}
}

// startEcho runs it on a machine, and connects to it.
func startEcho(t *testing.T, h *Host) net.Conn {
	t.Helper()
	at := h.Address + ":7000"
	cmd := h.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), echoEnv+"="+at), os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var c net.Conn
	wait.Until(t, "the machine to answer", func() (err error) {
		c, err = net.DialTimeout("tcp", at, time.Second)
		return err
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// round is how long a message of so many bytes takes there and back.
func round(t *testing.T, c net.Conn, size int, within time.Duration) (time.Duration, error) {
	t.Helper()
	began := time.Now()
	if err := c.SetDeadline(began.Add(within)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() { _, err := c.Write(make([]byte, size)); sent <- err }()
	_, err := io.ReadFull(c, make([]byte, size))
	return time.Since(began), errors.Join(err, <-sent)
}

// TestLink asks over a link that is good, slow, lossy and good again: nothing that TCP carries is
// damaged, and it takes as long as the link says.
func TestLink(t *testing.T) {
	h := New(t, 2)
	c := startEcho(t, h[0])
	exchange := func(what string, size int) time.Duration {
		t.Helper()
		took, err := round(t, c, size, wait.Patience)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return took
	}
	exchange("a good link", 1<<20)
	h[0].Link(Link{Delay: 40 * time.Millisecond})
	exchange("a slow link, which the other end's address is asked over first", 1)
	if took := exchange("a slow link", 1); took < 80*time.Millisecond {
		t.Errorf("40 ms either way took %v there and back", took)
	}
	exchange("many segments over a slow link", 1<<20)
	h[0].Link(Link{Loss: 1})
	if took, err := round(t, c, 1, 500*time.Millisecond); err == nil {
		t.Fatalf("over a link that loses everything an answer came after %v", took)
	}
	c = startAgain(t, h[0], c)
	h[0].Link(Link{Loss: 0.05})
	exchange("a lossy link", 1<<20)
	h[0].Heal()
	exchange("the link that is good again", 1<<20)
}

// startAgain makes the link good and connects anew.
func startAgain(t *testing.T, h *Host, c net.Conn) net.Conn {
	t.Helper()
	at := c.RemoteAddr().String()
	_ = c.Close()
	h.Heal()
	var again net.Conn
	wait.Until(t, "the machine to answer again", func() (err error) {
		again, err = net.DialTimeout("tcp", at, time.Second)
		return err
	})
	t.Cleanup(func() { _ = again.Close() })
	return again
}

// TestSignal has a machine stand still, go on, and lose all of its processes.
func TestSignal(t *testing.T) {
	h := New(t, 2)
	c, other := startEcho(t, h[0]), startEcho(t, h[1])
	h[0].Signal(syscall.SIGSTOP)
	if took, err := round(t, c, 1, 500*time.Millisecond); err == nil {
		t.Fatalf("a machine that stands still answered after %v", took)
	}
	if _, err := round(t, other, 1, wait.Patience); err != nil {
		t.Errorf("the other machine: %v", err)
	}
	h[0].Signal(syscall.SIGCONT)
	if err := c.SetReadDeadline(time.Now().Add(wait.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("what was sent while it stood still: %v", err)
	}
	h[0].Signal(syscall.SIGKILL)
	if pids, err := h[0].pids(); err != nil || len(pids) > 0 {
		t.Errorf("processes %v of a machine that was killed, %v", pids, err)
	}
	if _, err := round(t, other, 1, wait.Patience); err != nil {
		t.Errorf("the other machine: %v", err)
	}
}

// TestCut takes a machine off the network.
func TestCut(t *testing.T) {
	h := New(t, 1)
	c := startEcho(t, h[0])
	h[0].Cut()
	if took, err := round(t, c, 1, 500*time.Millisecond); err == nil {
		t.Fatalf("a machine that is cut off answered after %v", took)
	}
	startAgain(t, h[0], c)
}

// TestDisk has two machines write to one path, each on a disk of its own, which lasts.
func TestDisk(t *testing.T) {
	h, at := New(t, 2), t.TempDir()
	own := []string{h[0].Disk(at), h[1].Disk(at)}
	run := func(cmd *exec.Cmd) string {
		t.Helper()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	file := filepath.Join(at, "file")
	for i := range h {
		run(h[i].Command("sh", "-c", `echo "$1" > "$2"`, "sh", h[i].Address, file))
	}
	for i := range h {
		if got := run(h[i].Command("cat", file)); got != h[i].Address {
			t.Errorf("machine %d reads %q", i, got)
		}
		if raw, err := os.ReadFile(filepath.Join(own[i], "file")); err != nil || strings.TrimSpace(string(raw)) != h[i].Address {
			t.Errorf("its disk holds %q, %v", raw, err)
		}
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the test sees it too: %v", err)
	}
}
