package jetstream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

const leaseURL = "MONOLITH_TEST_LEASE_URL"

// leaseChild is the process that is killed: it holds a lease, says so, and never returns.
func leaseChild() bool {
	url := os.Getenv(leaseURL)
	if url == "" {
		return false
	}
	b, err := jetstream.Connect(context.Background(), jetstream.Config{URL: url, Name: "child", BZID: "bustest"})
	if err == nil {
		var l bus.Lease
		if l, _, err = b.Leases().TryAcquire(context.Background(), "writer", "child", time.Hour); err == nil {
			fmt.Println("epoch", l.Epoch)
			select {}
		}
	}
	fmt.Println(err)
	os.Exit(1)
	return true
}

// A lease whose holder was killed on this machine is had at once, and with a higher epoch;
// one whose holder lives, or merely stands still, is not.
func TestALeaseOfADeadProcessIsNotWaitedFor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux says whether a process has ended")
	}
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{URL: s.URL()})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), leaseURL+"="+s.URL())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(wait.Patience, func() { cmd.Process.Kill() })
	defer watchdog.Stop()
	var epoch uint64
	line := bufio.NewScanner(out)
	line.Scan()
	if _, err := fmt.Sscanf(line.Text(), "epoch %d", &epoch); err != nil {
		t.Fatalf("the child says %q", line.Text())
	}
	held := func(when string) {
		t.Helper()
		if _, _, err := b.Leases().TryAcquire(t.Context(), "writer", "parent", time.Hour); !errors.Is(err, bus.ErrConflict) {
			t.Errorf("while its holder %s: %v, want %v", when, err, bus.ErrConflict)
		}
	}
	held("lives")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	held("stands still")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // killed: its error says so
	l, release, err := b.Leases().TryAcquire(t.Context(), "writer", "parent", time.Hour)
	if err != nil {
		t.Fatalf("when its holder is dead: %v", err)
	}
	defer release()
	if l.Epoch <= epoch {
		t.Errorf("epoch %d after %d: it does not fence", l.Epoch, epoch)
	}
}
