package jetstream_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

const serverDir = "MONOLITH_TEST_SERVER_DIR"

// serverChild is a process that is a server and nothing else: it says where, and ends with
// its standard input.
func serverChild() bool {
	dir := os.Getenv(serverDir)
	if dir == "" {
		return false
	}
	s, err := natsserver.Start(natsserver.Config{Dir: dir})
	if err == nil {
		fmt.Println("serves", s.URL())
		_, _ = io.Copy(io.Discard, os.Stdin) // the test's end, whatever it is
		err = s.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// serverElsewhere starts a server in a process of its own, so that what it holds is not taken
// for what its clients hold: its blocks stay in memory until timers of its own let them go.
func serverElsewhere(t *testing.T) (url string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverDir+"="+t.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		watchdog := time.AfterFunc(wait.Patience, func() { _ = cmd.Process.Kill() })
		defer watchdog.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server's process: %v: %s", err, stderr.String())
		}
	})
	watchdog := time.AfterFunc(wait.Patience, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	line := bufio.NewScanner(out)
	line.Scan()
	if _, err := fmt.Sscanf(line.Text(), "serves %s", &url); err != nil {
		t.Fatalf("the server's process says %q", line.Text())
	}
	return url
}

// TestLettersInMemory reads letters that are larger than what it may hold.
func TestLettersInMemory(t *testing.T) {
	b := connect(t, jetstream.Config{URL: serverElsewhere(t)})
	const letters, size = 200, 640 << 10
	for i := range uint64(letters) {
		park(t, b, bus.Parked{Reason: "r", By: "demo", Stream: fmt.Sprintf("csv:%d", i%4), StreamSeq: i, Subject: "ratings", Data: make([]byte, size)})
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, most, n := heap(), int64(0), 0
	err := b.DeadLetters().Each(t.Context(), func(p bus.Parked) error {
		if n++; n%10 == 0 {
			most = max(most, heap()-before)
		}
		return nil
	})
	if err != nil || n != letters {
		t.Fatalf("%d letters, %v", n, err)
	}
	t.Logf("reading %d MiB of letters took %d MiB", letters*size>>20, most>>20)
	if most > letters*size/3 {
		t.Errorf("reading %d bytes of letters took %d bytes of memory", letters*size, most)
	}
}
