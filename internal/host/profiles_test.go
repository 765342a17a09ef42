package host

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// TestProfiles takes profiles from the status port as go tool pprof does.
func TestProfiles(t *testing.T) {
	well := health.New()
	s, err := (&statusPort{listen: "127.0.0.1:0"}).serve(newRegistry(well), well)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path string) (int, []byte) {
		t.Helper()
		resp, err := http.Get("http://" + s.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, body
	}
	for path, kind := range map[string]string{"heap": "inuse_space", "allocs": "alloc_space", "goroutine": "goroutine", "profile?seconds=1": "cpu"} {
		code, body := ask("/debug/pprof/" + path)
		z, err := gzip.NewReader(bytes.NewReader(body))
		if code != 200 || err != nil {
			t.Errorf("%s: %d %v, no packed profile: %.80q", path, code, err, body)
			continue
		}
		if raw, err := io.ReadAll(z); err != nil || !bytes.Contains(raw, []byte(kind)) {
			t.Errorf("%s: %d bytes, no profile of %s, %v", path, len(raw), kind, err)
		}
	}
	if code, body := ask("/debug/pprof/goroutine?debug=2"); code != 200 || !strings.Contains(string(body), "TestProfiles") {
		t.Errorf("the stacks do not show this test: %d", code)
	}
	if code, _ := ask("/debug/pprof/cmdline"); code != http.StatusNotFound {
		t.Errorf("the command line, in which a password may stand, is answered with %d", code)
	}
	for _, seconds := range []string{"121", "0", "-1", "NaN", "ten"} {
		if code, body := ask("/debug/pprof/profile?seconds=" + seconds); code != http.StatusBadRequest || !strings.Contains(string(body), "up to 120") {
			t.Errorf("%s seconds: %d %s", seconds, code, body)
		}
	}
	// A profile that is being taken holds up no stop.
	taken := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + s.addr + "/debug/pprof/trace?seconds=119")
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		taken <- err
	}()
	wait.For(t, "the trace to begin", func() bool {
		_, stacks := ask("/debug/pprof/goroutine?debug=2")
		return strings.Contains(string(stacks), "pprof.Trace(")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second) // less than the trace
	defer cancel()
	if err := s.close(ctx); err != nil {
		t.Errorf("a stop beside a trace: %v", err)
	}
	<-taken // cut off or whole: the client knows
}
