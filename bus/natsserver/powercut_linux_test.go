package natsserver_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/internal/testenv/powercut"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// child is a process with a server, and a connection to it.
type child struct {
	cmd *exec.Cmd
	js  jetstream.JetStream
	nc  *nats.Conn
}

func startChild(t *testing.T, dir string) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), serverFolder+"="+dir)
	cmd.Stderr = t.Output()
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd}
	t.Cleanup(c.kill)
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server has not started: %v", err)
	}
	if c.nc, err = nats.Connect(strings.TrimSpace(url), nats.NoReconnect()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.nc.Close)
	if c.js, err = jetstream.New(c.nc); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *child) kill() { _ = c.cmd.Process.Kill() }

func (c *child) wait() {
	_ = c.cmd.Wait() // it was killed
}

// Where a name is on disk after a sync of its folder alone, everything that was acked is
// there after a cut, also in blocks that were begun since the start.
func TestPowerCut(t *testing.T) {
	for name, policy := range map[string]powercut.Policy{"journal": powercut.Journal, "strict": powercut.Strict} {
		t.Run(name, func(t *testing.T) {
			mount, disk := powercut.ForTest(t, policy)
			dir := filepath.Join(mount, "data", "nats")
			c := startChild(t, dir)
			if _, err := c.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Storage: jetstream.FileStorage}); err != nil {
				t.Fatal(err)
			}
			const messages = 30 // of nearly a mebibyte: several blocks
			for i := range messages {
				if _, err := c.js.Publish(t.Context(), "s", bytes.Repeat([]byte{byte(i)}, 1<<20-1024)); err != nil {
					t.Fatal(err)
				}
			}
			blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "S", "msgs", "*.blk"))
			if err != nil || len(blocks) < 3 {
				t.Fatalf("blocks %q, %v: nothing is tested", blocks, err)
			}
			wait.Seen(t, "the names on disk", func() (string, bool) {
				names := disk.Unsynced()
				return fmt.Sprintf("%q are not", names), len(names) == 0 || policy == powercut.Journal
			})
			if err := disk.Cut(powercut.Nothing, nil, c.kill, c.wait); err != nil {
				t.Fatal(err)
			}
			c = startChild(t, dir)
			s, err := c.js.Stream(t.Context(), "S")
			if err != nil {
				t.Fatalf("the stream after the cut: %v", err)
			}
			for i := range messages {
				m, err := s.GetMsg(t.Context(), uint64(i+1))
				if err != nil || len(m.Data) != 1<<20-1024 || m.Data[0] != byte(i) {
					t.Fatalf("message %d after the cut: %v", i+1, err)
				}
			}
			c.kill()
			c.wait()
		})
	}
}
