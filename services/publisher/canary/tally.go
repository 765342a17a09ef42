package canary

import (
	"math"
	"slices"

	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/impression"
)

// waiting bounds the answers that wait for their rating, and the ratings that wait for their answer:
// at least so many of the newest are held, and at most twice as many.
const waiting = 100_000

// Tally joins impressions with ratings, whichever come first, and counts a pair once. It is a function of
// what it was given, and not safe for concurrent use.
type Tally struct {
	of      *publish.CanaryDeclared
	answers impression.Joiner
	ratings impression.Joiner // their labels stand as scores, under no version
	sides   [2]side           // stable and candidate
}

// side is what is known of one version.
type side struct {
	scores []float64
	labels []bool
	tookMS []float64
}

// NewTally counts for a canary.
func NewTally(of *publish.CanaryDeclared) *Tally {
	return &Tally{of: of, answers: impression.Joiner{Limit: 2 * waiting}, ratings: impression.Joiner{Limit: waiting}}
}

// versions are those that are compared.
func (t *Tally) versions() [2]int64 { return [2]int64{t.of.GetStable(), t.of.GetCandidate()} }

func (t *Tally) who(version int64) impression.Of {
	return impression.Of{Model: t.of.GetModelName(), Version: version}
}

// Impression takes an answer in, or the shadow of one. Of a canary in shadow only requests count that
// both versions have scored, so that both are judged on the very same ratings.
func (t *Tally) Impression(i *impression.Impression) {
	shadow := t.of.GetMode() == publish.CanaryDeclared_SHADOW && i.Version == t.of.GetCandidate()
	if i.Model != t.of.GetModelName() || i.Version != t.of.GetStable() && i.Version != t.of.GetCandidate() || i.Shadow != shadow {
		return
	}
	t.answers.Add(t.who(i.Version), i)
	t.join(impression.Key{RequestID: i.RequestID, Row: i.Row})
}

// Rating takes what was learnt of a row.
func (t *Tally) Rating(k impression.Key, label bool) {
	i := &impression.Impression{RequestID: k.RequestID, Row: k.Row}
	if label {
		i.Score = 1
	}
	t.ratings.Add(impression.Of{}, i)
	t.join(k)
}

// join counts what has become complete.
func (t *Tally) join(k impression.Key) {
	label, ok := t.ratings.Answer(impression.Of{}, k)
	if !ok {
		return
	}
	var found [2]impression.Answer
	var there [2]bool
	for i, v := range t.versions() {
		found[i], there[i] = t.answers.Answer(t.who(v), k)
	}
	if both := there[0] && there[1]; !both && (t.of.GetMode() == publish.CanaryDeclared_SHADOW || !there[0] && !there[1]) {
		return
	}
	t.ratings.Forget(impression.Of{}, k)
	for i, v := range t.versions() {
		if there[i] {
			t.answers.Forget(t.who(v), k)
			t.sides[i].add(found[i], label.Score > 0)
		}
	}
}

func (s *side) add(a impression.Answer, label bool) {
	if len(s.scores) == publish.MaxRatings {
		return
	}
	s.scores, s.labels = append(s.scores, a.Score), append(s.labels, label)
	if a.TookUS > 0 {
		s.tookMS = append(s.tookMS, float64(a.TookUS)/1000)
	}
}

// Enough says whether both versions have as many ratings as the rule asks for.
func (t *Tally) Enough() bool {
	n := int(t.of.GetRule().GetMinRatings())
	return len(t.sides[0].scores) >= n && len(t.sides[1].scores) >= n
}

// Figures are those of the stable version and of the candidate.
func (t *Tally) Figures() (stable, candidate *publish.Figures) {
	v := t.versions()
	return t.sides[0].figures(v[0]), t.sides[1].figures(v[1])
}

func (s *side) figures(version int64) *publish.Figures {
	took := slices.Sorted(slices.Values(s.tookMS))
	return &publish.Figures{
		Version: version, Ratings: uint64(len(s.scores)),
		Auc: figure(eval.AUC(s.scores, s.labels)), Calibration: figure(eval.Calibration(s.scores, s.labels)),
		P50Ms: figure(eval.Percentile(took, 50)), P99Ms: figure(eval.Percentile(took, 99)),
	}
}

// figure leaves out what is not known.
func figure(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}
