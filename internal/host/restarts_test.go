package host

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/process/health"
)

// TestRestarts: a role that ends again and again fails the whole where a limit is set, and waits as it is
// told to between two starts.
func TestRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Logs: connect.Config{NATS: "nats://no.such.host.invalid:1", BZID: "demo", Level: "error"}, Dir: "/dev/null/no folder", Restarts: Restarts{Most: 3, Wait: time.Hour}}
		s := &Stack{Config: cfg, Log: slog.New(slog.DiscardHandler), health: health.New()}
		s.Config.Processes = true // whose logs cannot be written
		began := time.Now()
		err := s.supervise(t.Context(), Task{Name: "ps-0", Role: "ps"}, func() {})
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "ended 3 times in a row, and --max-restarts says 3: ") || took < 2*time.Hour/3 || took > 2*time.Hour {
			t.Errorf("after %v: %v", took, err)
		}
	})
	for _, bad := range []Restarts{{Most: -1}, {Wait: -1}, {Wait: 2 * time.Hour}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
