package host

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/process/health"
)

func TestReadyzShowsWhatDoesNotWork(t *testing.T) {
	well := health.New()
	s, err := (&statusPort{listen: "127.0.0.1:0"}).serve(newRegistry(well), well)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	ask := func(path string) (int, string) {
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
		return resp.StatusCode, string(body)
	}
	s.ready.Store(true)
	if code, body := ask("/readyz"); code != 200 || body != "ok\n" {
		t.Errorf("all is well, and /readyz says %d %q", code, body)
	}
	well.Scope("trainer-0").Fail("partition ratings/3", errors.New("offset 7 cannot be learnt"))
	if code, body := ask("/readyz"); code != 503 || !strings.Contains(body, "trainer-0: partition ratings/3: offset 7 cannot be learnt") {
		t.Errorf("a partition stands, and /readyz says %d %q", code, body)
	}
	if _, body := ask("/metrics"); !strings.Contains(body, `monolith_problem{problem="trainer-0: partition ratings/3"} 1`) {
		t.Error("/metrics does not show the problem")
	}
	s.answers = true // as a model server does
	if code, body := ask("/readyz"); code != 200 || !strings.HasPrefix(body, "ok\n") || !strings.Contains(body, "offset 7 cannot be learnt") {
		t.Errorf("predictions go on, and /readyz says %d %q", code, body)
	}
	s.answers = false
	well.Scope("trainer-0").OK("partition ratings/3")
	if code, _ := ask("/readyz"); code != 200 {
		t.Errorf("it works again, and /readyz says %d", code)
	}
}

func TestStatusBeyondThisMachineIsAskedForByName(t *testing.T) {
	well := health.New()
	if s, err := (&statusPort{listen: "0.0.0.0:0"}).serve(newRegistry(well), well); !errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), "--insecure-status") {
		t.Errorf("serve = %v, %v; want a refusal that names the flag", s, err)
	}
}
