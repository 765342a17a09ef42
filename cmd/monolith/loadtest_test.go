package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/loadtest/report"
)

// A load test without a target starts processes of its own and ends them, says what happened to them
// meanwhile, in JSON and on its page, and each call is answered whatever it was.
func TestLoadTestDisturbsItsOwnProcesses(t *testing.T) {
	for event, want := range map[string]struct{ protocol, first string }{
		"kill":   {"tensorflow", "serving-0-1 is killed"},
		"slow":   {"kserve", "serving-0-1 is slow"},
		"swap":   {"kserve-rest", "version 3 is to be loaded"},
		"deltas": {"tensorflow", "5000 ratings a second are learnt"},
	} {
		t.Run(event, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			scenario, page := filepath.Join(dir, "s.yaml"), filepath.Join(dir, "s.html")
			text := fmt.Sprintf("event: %s\nprotocol: %s\nrate: 20\narrivals: even\nduration: 3s\nbatch: 3\nskew: 1.5\ntimeout: 2m\nmax_in_flight: 4096\n", event, want.protocol)
			if err := os.WriteFile(scenario, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c := startChild(t, "loadtest", "run", scenario, "--json", "--html", page, "--shards", "1")
			if err := c.wait(t, 10*time.Minute); err != nil {
				t.Fatalf("%v\n%s", err, tail(c.err.String()))
			}
			var got struct {
				Calls    int64         `json:"calls"`
				Answered int64         `json:"answered"`
				Errors   any           `json:"errors_by_code"`
				Events   []report.Mark `json:"events"`
			}
			if err := json.Unmarshal(c.out.Bytes(), &got); err != nil {
				t.Fatalf("%v\n%s", err, c.out.String())
			}
			if got.Calls == 0 || got.Answered != got.Calls {
				t.Errorf("%d of %d calls are answered: %v", got.Answered, got.Calls, got.Errors)
			}
			if len(got.Events) == 0 || !strings.HasPrefix(got.Events[0].Text, want.first) || got.Events[0].Second < 1 {
				t.Fatalf("events %v, want %s first, a second after the start", got.Events, want.first)
			}
			shown, err := os.ReadFile(page)
			if err != nil || strings.Count(string(shown), got.Events[0].Text) < 2 { // in the drawing and in the list
				t.Errorf("the page: %v, %d bytes without what happened", err, len(shown))
			}
			if left, err := filepath.Glob(filepath.Join(dir, "monolith-loadtest-*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %q, %v", left, err)
			}
		})
	}
}
