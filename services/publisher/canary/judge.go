// Package canary measures the two versions of a canary on live requests, and decides by its rule
// which one serves.
package canary

import (
	"fmt"
	"math"
	"time"

	"github.com/monolith-go/monolith/events/publish"
)

// Judge decides a canary on figures at a time; nil: it goes on. It is a function of these alone.
func Judge(c *publish.CanaryDeclared, stable, candidate *publish.Figures, at time.Time) *publish.CanaryDecided {
	rule := c.GetRule()
	enough := stable.GetRatings() >= uint64(rule.GetMinRatings()) && candidate.GetRatings() >= uint64(rule.GetMinRatings())
	known := stable.Auc != nil && candidate.Auc != nil
	switch {
	case enough && known:
		if broken := breaks(rule, stable, candidate); broken != "" {
			return Verdict(c, publish.CanaryDecided_ROLLED_BACK, broken, stable, candidate)
		}
		return Verdict(c, publish.CanaryDecided_PROMOTED, fmt.Sprintf("version %d keeps to every bound of the rule: its AUC is %.4f, that of version %d %.4f", c.GetCandidate(), candidate.GetAuc(), c.GetStable(), stable.GetAuc()), stable, candidate)
	case at.UnixMilli() >= c.GetExpiresMs():
		why := fmt.Sprintf("by %s version %d had %d ratings and version %d had %d, and the rule asks for %d of each",
			time.UnixMilli(c.GetExpiresMs()).UTC().Format(time.RFC3339), c.GetStable(), stable.GetRatings(), c.GetCandidate(), candidate.GetRatings(), rule.GetMinRatings())
		if enough {
			why = "all ratings were of one kind, and of such there is no AUC"
		}
		return Verdict(c, publish.CanaryDecided_EXPIRED, why, stable, candidate)
	}
	return nil
}

// breaks says which bound the candidate does not keep to, "" for none.
func breaks(rule *publish.Rule, stable, candidate *publish.Figures) string {
	if loss := stable.GetAuc() - candidate.GetAuc(); loss > rule.GetMaxAucLoss() {
		return fmt.Sprintf("the AUC of version %d is %.4f, %.4f below the %.4f of version %d, and the rule allows %g", candidate.GetVersion(), candidate.GetAuc(), loss, stable.GetAuc(), stable.GetVersion(), rule.GetMaxAucLoss())
	}
	if gap, most := math.Abs(candidate.GetCalibration()), rule.GetMaxCalibrationGap(); most > 0 && gap > most {
		return fmt.Sprintf("the mean score of version %d is %.4f away from the mean label, and the rule allows %g", candidate.GetVersion(), gap, most)
	}
	if most := rule.GetMaxP99Ratio(); most > 0 && candidate.P99Ms != nil && candidate.GetP99Ms() > most*stable.GetP99Ms() {
		return fmt.Sprintf("99 in 100 requests take version %d up to %.3f ms and version %d up to %.3f ms, and the rule allows %g times that", candidate.GetVersion(), candidate.GetP99Ms(), stable.GetVersion(), stable.GetP99Ms(), most)
	}
	return ""
}

// Verdict is the fact that ends c.
func Verdict(c *publish.CanaryDeclared, v publish.CanaryDecided_Verdict, reason string, stable, candidate *publish.Figures) *publish.CanaryDecided {
	return &publish.CanaryDecided{ModelName: c.GetModelName(), Candidate: c.GetCandidate(), Verdict: v, Reason: reason, StableFigures: stable, CandidateFigures: candidate}
}
