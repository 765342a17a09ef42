package health_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/monolith-go/monolith/internal/process/health"
)

func TestAProblemLastsUntilItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := health.New()
		ps, trainer := whole.Scope("ps-0"), whole.Scope("trainer-0")
		ps.Fail("deltas", errors.New("nobody takes them"))
		time.Sleep(time.Minute)
		ps.Fail("deltas", errors.New("the stream is full"))
		trainer.Fail("partition ratings/3", errors.New("stands at offset 7"))
		if got, want := whole.Text(time.Now()), "ps-0: deltas: the stream is full (for 1m0s)\ntrainer-0: partition ratings/3: stands at offset 7 (for 0s)\n"; got != want {
			t.Errorf("Text:\n%swant:\n%s", got, want)
		}
		if got := ps.Summary(); got != "deltas: the stream is full" {
			t.Errorf("Summary = %q", got)
		}
		if got := ps.Summary("deltas"); got != "" {
			t.Errorf("Summary without deltas = %q", got)
		}
		want := "# HELP monolith_problem 1 while this keeps the process from its work; /readyz says why\n# TYPE monolith_problem gauge\n" +
			"monolith_problem{problem=\"ps-0: deltas\"} 1\nmonolith_problem{problem=\"trainer-0: partition ratings/3\"} 1\n"
		if err := testutil.CollectAndCompare(whole, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
		ps.OK("deltas")
		ps.OK("never failed")
		trainer.Clear()
		if left := whole.Problems(); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestReasonsAreBounded(t *testing.T) {
	s := health.New()
	for i := range 50 {
		s.Fail("p"+string(rune('A'+i)), errors.New(strings.Repeat("é\xff", 1000)))
	}
	if got := s.Summary(); len(got) > 1000 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
		t.Errorf("the summary is %d bytes: %q", len(got), got)
	}
	for _, p := range s.Problems() {
		if len(p.Reason) > 300 || !utf8.ValidString(p.Reason) {
			t.Errorf("a reason is %d bytes", len(p.Reason))
		}
	}
}

func TestNilKeepsNothing(t *testing.T) {
	var s *health.State
	s.Scope("x").Fail("y", errors.New("z"))
	s.OK("y")
	s.Clear()
	if s.Summary() != "" || s.Text(time.Now()) != "" {
		t.Error("a nil state has problems")
	}
}
