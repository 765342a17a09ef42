package publish

import "github.com/monolith-go/monolith/events"

// Bounds of a canary.
const (
	MaxRatings  = 1_000_000 // that a rule may ask for: as many are held in memory
	MaxP99Ratio = 1000
)

// Validate reports the bounds that c breaks as an [events.ErrInvalid], wherever it lies in the log.
func (c *CanaryDeclared) Validate() error {
	var r events.Rules
	declared(&r, c)
	return r.Err()
}

func declared(r *events.Rules, c *CanaryDeclared) {
	r.Check(c.GetStable() > 0 && c.GetCandidate() > 0, "a canary needs the versions stable and candidate, which are %d and %d", c.GetStable(), c.GetCandidate())
	r.Check(c.GetStable() != c.GetCandidate(), "version %d cannot be its own candidate: name another one", c.GetStable())
	r.Check(c.GetShare() > 0 && c.GetShare() <= 1, "the share is %v: give a part of 1, such as 0.1", c.GetShare())
	_, known := CanaryDeclared_Mode_name[int32(c.GetMode())]
	r.Check(known, "mode %d is none: take SHADOW or ANSWER", c.GetMode())
	r.Check(c.GetExpiresMs() > 0, "a canary needs the time at which it expires")
	rule := c.GetRule()
	r.Check(rule.GetMinRatings() > 0 && rule.GetMinRatings() <= MaxRatings, "min_ratings is %d: give 1 to %d", rule.GetMinRatings(), MaxRatings)
	r.Check(rule.GetMaxAucLoss() >= 0 && rule.GetMaxAucLoss() <= 1, "max_auc_loss is %v: give 0 to 1", rule.GetMaxAucLoss())
	r.Check(rule.GetMaxCalibrationGap() >= 0 && rule.GetMaxCalibrationGap() <= 1, "max_calibration_gap is %v: give 0 (any) to 1", rule.GetMaxCalibrationGap())
	r.Check(rule.GetMaxP99Ratio() >= 0 && rule.GetMaxP99Ratio() <= MaxP99Ratio, "max_p99_ratio is %v: give 0 (any) to %d", rule.GetMaxP99Ratio(), MaxP99Ratio)
	for topic, from := range map[string]map[int32]int64{"ratings": c.GetRatings(), "predictions": c.GetPredictions()} {
		for p, offset := range from {
			r.Check(p >= 0 && offset >= 0, "%s begin in partition %d at offset %d, which is no place of a topic", topic, p, offset)
		}
	}
}

func decided(r *events.Rules, c *CanaryDecided) {
	_, known := CanaryDecided_Verdict_name[int32(c.GetVerdict())]
	r.Check(known && c.GetVerdict() != CanaryDecided_UNDECIDED, "verdict %d is none: it is PROMOTED, ROLLED_BACK or EXPIRED", c.GetVerdict())
	r.Check(c.GetCandidate() > 0, "a verdict needs its candidate")
	r.Reason("a verdict", c.GetReason())
	for of, f := range map[string]*Figures{"stable": c.GetStableFigures(), "candidate": c.GetCandidateFigures()} {
		r.Finite("the AUC of "+of, f.GetAuc())
		r.Finite("the calibration of "+of, f.GetCalibration())
		r.Finite("the median latency of "+of, f.GetP50Ms())
		r.Finite("the 99th percentile of the latency of "+of, f.GetP99Ms())
	}
}
