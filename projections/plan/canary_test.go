package plan_test

import (
	"testing"

	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/projections/plan"
)

func TestCanary(t *testing.T) {
	const undecided, promoted, back, expired = publish.CanaryDecided_UNDECIDED, publish.CanaryDecided_PROMOTED, publish.CanaryDecided_ROLLED_BACK, publish.CanaryDecided_EXPIRED
	for _, tc := range []struct {
		name                          string
		planned, candidate            int64 // 0: none
		verdict                       publish.CanaryDecided_Verdict
		beside, avoided, afterVerdict int64 // Candidate, Avoided, Stable
	}{
		{name: "no canary", planned: 7},
		{"it runs", 7, 9, undecided, 9, 9, 7},
		{"an older version runs", 7, 5, undecided, 5, 5, 7},
		{"nothing is planned any more", 0, 9, undecided, 0, 9, 7},
		{"rolled back", 7, 9, back, 0, 9, 7},
		{"expired", 7, 9, expired, 0, 9, 7},
		{"promoted, not planned yet", 7, 9, promoted, 0, 0, 9},
		{"promoted", 9, 9, promoted, 0, 0, 9},
		{"loaded by name after a rollback", 9, 9, back, 0, 0, 7},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p plan.Plan
			if tc.planned > 0 {
				p.Planned.V = &publish.Planned{Version: tc.planned}
			}
			if tc.candidate > 0 {
				p.Canary.Declared.V = &publish.CanaryDeclared{Stable: 7, Candidate: tc.candidate, Cause: 4}
			}
			if tc.verdict != undecided {
				p.Canary.Decided.V = &publish.CanaryDecided{Candidate: tc.candidate, Verdict: tc.verdict}
			}
			if b, a, v := p.Candidate(), p.Avoided(), p.Stable(4); b != tc.beside || a != tc.avoided || v != tc.afterVerdict {
				t.Errorf("beside %d, avoided %d, stable %d; want %d, %d, %d", b, a, v, tc.beside, tc.avoided, tc.afterVerdict)
			}
			if v := p.Stable(5); v != 0 {
				t.Errorf("another load is served in version %d", v)
			}
		})
	}
}
