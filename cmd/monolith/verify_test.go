package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/loadtest/audit"
)

// TestVerifyWithoutAReport proves the folder of a system that runs, and again when it has
// stopped; a folder that is none is refused.
func TestVerifyWithoutAReport(t *testing.T) {
	w := opsServe(t, opsConfig(t.TempDir()))
	w.rate(300)
	w.learnt()
	w.agree()
	prove := func(live bool) {
		t.Helper()
		code, out, stderr := opsTool("verify", "--dir", w.Config.Dir, "--json")
		var got struct {
			OK     bool
			Checks []audit.Check
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("exit %d: %v\n%s%s", code, err, out, stderr)
		}
		views := 0
		for _, c := range got.Checks {
			if strings.HasPrefix(c.Name, "view ") {
				views++
			}
			if !c.OK {
				t.Error(c)
			}
		}
		if code != exitOK || !got.OK || len(got.Checks) < 6 || live != (views > 0) {
			t.Errorf("exit %d, %d checks, %d of them of views: %s", code, len(got.Checks), views, stderr)
		}
	}
	prove(true)
	w.halt()
	prove(false)
	if code, _, stderr := opsTool("verify", "--dir", w.Config.Dir, "--bzid", "other"); code != exitFailure || !strings.Contains(stderr, "--bzid names another") {
		t.Errorf("another namespace: %d %s", code, stderr)
	}
	if code, _, stderr := opsTool("verify", "--dir", t.TempDir()); code != exitFailure || !strings.Contains(stderr, "is no data folder") {
		t.Errorf("an empty folder: %d %s", code, stderr)
	}
}
