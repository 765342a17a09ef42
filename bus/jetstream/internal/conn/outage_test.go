package conn

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/retry"
)

// An outage is a problem once more attempts to reconnect than a few have failed for a reason that is
// known, until the connection is back; each outage begins with short pauses.
func TestWhenAnOutageIsAProblem(t *testing.T) {
	well := health.New()
	o := &outage{c: &Conn{Log: slog.New(slog.DiscardHandler), cfg: Config{Health: well}}, pauses: retry.New(time.Second, time.Hour)}
	told := func() bool { return strings.Contains(well.Summary(), problem) }
	for range 2 {
		for attempt := range quiet + 5 { // without a reason
			if o.pause(attempt); told() {
				t.Fatalf("a problem without a reason: %s", well.Summary())
			}
		}
		o.began(errors.New("EOF"))
		for attempt := 1; attempt <= quiet+2; attempt++ {
			pause := o.pause(attempt)
			if attempt == 1 && pause > 2*time.Second {
				t.Errorf("an outage begins with a pause of %v", pause)
			}
			if told() != (attempt > quiet) {
				t.Errorf("after %d attempts: %q", attempt, well.Summary())
			}
		}
		if o.over("nats://localhost"); told() {
			t.Errorf("with a connection: %s", well.Summary())
		}
	}
}

// In an outage each error is told once, however often it comes; else each time.
func TestWhatIsToldOfAnOutage(t *testing.T) {
	var out bytes.Buffer
	o := &outage{c: &Conn{Log: slog.New(slog.NewTextHandler(&out, nil)), cfg: Config{Health: health.New()}}, pauses: retry.New(time.Second, time.Hour)}
	see := func() int {
		out.Reset()
		for range 3 {
			o.saw("seen", errors.New("refused"), "")
		}
		return strings.Count(out.String(), "msg=seen")
	}
	for range 2 {
		if n := see(); n != 3 {
			t.Errorf("with a connection it is told %d times, want 3", n)
		}
		if o.began(errors.New("EOF")); see() != 1 {
			t.Errorf("in an outage: %s", out.String())
		}
		o.over("nats://localhost")
	}
}

func TestLastError(t *testing.T) {
	if err := lastError(&nats.Conn{}); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("of a connection that nothing befell: %v", err)
	}
}
