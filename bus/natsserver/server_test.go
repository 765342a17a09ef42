package natsserver_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
)

// serverFolder makes the test binary a server on the folder that it names, until it is
// killed: a power cut takes the processes with it.
const serverFolder = "MONOLITH_TEST_NATS_DIR"

func serveUntilKilled(dir string) error {
	s, err := natsserver.Start(natsserver.Config{Dir: dir})
	if err != nil {
		return err
	}
	fmt.Println(s.URL())
	_, err = io.Copy(io.Discard, os.Stdin) // ends with the test
	return err
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverFolder); dir != "" {
		fmt.Fprintln(os.Stderr, serveUntilKilled(dir))
		os.Exit(1)
	}
	leaks.Main(m)
}

func start(t *testing.T, cfg natsserver.Config) *natsserver.Server {
	t.Helper()
	s, err := natsserver.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A folder belongs to one server at a time, and to the next one once that is closed.
func TestOneServerAFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "probe-1"), []byte("of a server that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, natsserver.Config{Dir: dir})
	if _, err := os.Stat(filepath.Join(dir, "probe-1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the probe of an earlier life: %v", err)
	}
	if _, err := natsserver.Start(natsserver.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use by another server") {
		t.Errorf("a second server on the folder: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	start(t, natsserver.Config{Dir: dir})
}

func TestStartRefuses(t *testing.T) {
	if _, err := natsserver.Start(natsserver.Config{}); !errors.Is(err, events.ErrInvalid) {
		t.Errorf("no folder: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(file, "nats")}); err == nil {
		t.Error("a folder that cannot be made")
	}
}

// What a server says of itself is what is configured, with defaults for the rest.
func TestServerIsAsConfigured(t *testing.T) {
	for _, tc := range []struct {
		cfg     natsserver.Config
		name    string
		payload int64
	}{
		{natsserver.Config{}, "monolith", 1 << 20},
		{natsserver.Config{Name: "ours", Host: "localhost", MaxPayload: 2 << 20, MaxStore: 1 << 30, MaxMemory: 1 << 20}, "ours", 2 << 20},
		{natsserver.Config{MaxPayload: 1 << 10}, "monolith", 1 << 20},
	} {
		tc.cfg.Dir = t.TempDir()
		s := start(t, tc.cfg)
		for how, connect := range map[string]func() (*nats.Conn, error){
			"socket":     func() (*nats.Conn, error) { return nats.Connect(s.URL()) },
			"in process": func() (*nats.Conn, error) { return nats.Connect("", nats.InProcessServer(s)) },
		} {
			nc, err := connect()
			if err != nil {
				t.Fatal(err)
			}
			if nc.ConnectedServerName() != tc.name || nc.MaxPayload() != tc.payload {
				t.Errorf("%s: %s takes %d bytes, want %s and %d", how, nc.ConnectedServerName(), nc.MaxPayload(), tc.name, tc.payload)
			}
			nc.Close()
		}
	}
}
