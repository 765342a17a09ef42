package canary_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/services/publisher/canary"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestJudge(t *testing.T) {
	const undecided, promoted, back, expired = publish.CanaryDecided_UNDECIDED, publish.CanaryDecided_PROMOTED, publish.CanaryDecided_ROLLED_BACK, publish.CanaryDecided_EXPIRED
	rule := &publish.Rule{MinRatings: 100, MaxAucLoss: 0.01, MaxCalibrationGap: 0.1, MaxP99Ratio: 2}
	figures := func(n uint64, auc, calibration, p99 float64) *publish.Figures {
		f := &publish.Figures{Ratings: n, Calibration: &calibration, P99Ms: &p99}
		if auc > 0 {
			f.Auc = &auc
		}
		return f
	}
	good := figures(100, 0.7, 0, 4)
	const never, past = 2_000_000, 500_000
	for _, tc := range []struct {
		name              string
		stable, candidate *publish.Figures
		expires           int64
		rule              *publish.Rule
		want              publish.CanaryDecided_Verdict
		says              string
	}{
		{"as good", good, good, never, rule, promoted, "keeps to every bound"},
		{"better", good, figures(100, 0.8, 0, 4), never, rule, promoted, "0.8000"},
		{"a little worse", good, figures(100, 0.695, 0, 4), never, rule, promoted, ""},
		{"worse", good, figures(100, 0.68, 0, 4), never, rule, back, "AUC of version 9 is 0.6800, 0.0200 below"},
		{"worse, and late", good, figures(100, 0.68, 0, 4), past, rule, back, "AUC"},
		{"it promises too much", good, figures(100, 0.7, 0.2, 4), never, rule, back, "away from the mean label"},
		{"it promises too little", good, figures(100, 0.7, -0.2, 4), never, rule, back, "away from the mean label"},
		{"any calibration", good, figures(100, 0.7, -0.9, 4), never, &publish.Rule{MinRatings: 100, MaxP99Ratio: 2}, promoted, ""},
		{"slow", good, figures(100, 0.7, 0, 9), never, rule, back, "99 in 100 requests"},
		{"any latency", good, figures(100, 0.7, 0, 900), never, &publish.Rule{MinRatings: 100}, promoted, ""},
		{"a candidate with few", good, figures(99, 0.9, 0, 4), never, rule, undecided, ""},
		{"a stable one with few", figures(99, 0.1, 0, 4), good, never, rule, undecided, ""},
		{"few at the end", good, figures(99, 0.9, 0, 4), past, rule, expired, "version 9 had 99"},
		{"ratings of one kind", figures(100, 0, 0, 4), figures(100, 0, 0, 4), never, rule, undecided, ""},
		{"ratings of one kind at the end", figures(100, 0, 0, 4), figures(100, 0, 0, 4), past, rule, expired, "of one kind"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &publish.CanaryDeclared{ModelName: "m", Stable: 7, Candidate: 9, Rule: tc.rule, ExpiresMs: tc.expires}
			stable, candidate := proto.CloneOf(tc.stable), proto.CloneOf(tc.candidate)
			stable.Version, candidate.Version = 7, 9
			got := canary.Judge(c, stable, candidate, time.UnixMilli(1_000_000))
			if got.GetVerdict() != tc.want || !strings.Contains(got.GetReason(), tc.says) {
				t.Fatalf("%v, want %v that says %q", got, tc.want, tc.says)
			}
			if got == nil {
				return
			}
			if !proto.Equal(got.GetStableFigures(), stable) || !proto.Equal(got.GetCandidateFigures(), candidate) || got.GetCandidate() != 9 {
				t.Errorf("%v does not hold what it was decided on", got)
			}
			if err := (&publish.Event{Body: &publish.Event_CanaryDecided{CanaryDecided: got}}).Validate("m"); err != nil {
				t.Error(err)
			}
		})
	}
}
