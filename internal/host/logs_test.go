package host

import (
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/host/connect"
)

// small is a stack of one of each, in a folder of its own, on ports that are free.
func small(t *testing.T) Config {
	t.Helper()
	return Config{Logs: connect.Config{BZID: "demo", Level: "info"}, Dir: t.TempDir(), Shards: 1, Replicas: 1, Trainers: 1, Partitions: 2, Batch: 32,
		Linger: 5 * time.Millisecond, Sync: 20 * time.Millisecond}
}

// logsOnly starts the logs of a stack and nothing that uses them, until the test ends or
// halt is called.
func logsOnly(t *testing.T, cfg Config) (s *Stack, halt func()) {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	halt = sync.OnceFunc(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the logs: %v", err)
		}
	})
	t.Cleanup(halt)
	return s, halt
}
