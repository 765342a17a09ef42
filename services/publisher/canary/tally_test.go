package canary_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/services/publisher/canary"
)

// Impressions and ratings give the same figures in whatever order they come, and what is not about the
// canary gives none.
func TestTallyInAnyOrder(t *testing.T) {
	for _, mode := range []publish.CanaryDeclared_Mode{publish.CanaryDeclared_SHADOW, publish.CanaryDeclared_ANSWER} {
		t.Run(mode.String(), func(t *testing.T) {
			of := &publish.CanaryDeclared{ModelName: "m", Stable: 7, Candidate: 9, Mode: mode, Rule: &publish.Rule{MinRatings: 20}}
			shadow := mode == publish.CanaryDeclared_SHADOW
			var steps []func(*canary.Tally)
			saw := func(i impression.Impression) {
				steps = append(steps, func(c *canary.Tally) { c.Impression(&i) })
			}
			for i := range 40 {
				id := fmt.Sprint("r", i)
				label := i%4 == 0
				good, bad := float32(0.2), float32(0.6)
				if label {
					good, bad = 0.8, 0.4
				}
				old := impression.Impression{RequestID: id, Row: 1, Model: "m", Version: 7, Score: good, TookUS: 1000 + int64(i)}
				next := impression.Impression{RequestID: id, Row: 1, Model: "m", Version: 9, Score: bad, TookUS: 5000, Shadow: shadow}
				if shadow || i%2 == 0 {
					saw(old)
				}
				if shadow || i%2 == 1 {
					saw(next)
				}
				saw(impression.Impression{RequestID: id, Row: 1, Model: "m", Version: 8, Score: 1})
				saw(impression.Impression{RequestID: id, Row: 1, Model: "other", Version: 7, Score: 1})
				saw(impression.Impression{RequestID: id, Row: 2, Model: "m", Version: 7, Score: 1}) // never rated
				saw(impression.Impression{RequestID: id, Row: 1, Model: "m", Version: 9, Score: 1, Shadow: !shadow})
				steps = append(steps, func(c *canary.Tally) { c.Rating(impression.Key{RequestID: id, Row: 1}, label) })
			}
			if shadow { // one that the candidate has not scored counts for neither
				saw(impression.Impression{RequestID: "alone", Row: 1, Model: "m", Version: 7, Score: 1})
				steps = append(steps, func(c *canary.Tally) { c.Rating(impression.Key{RequestID: "alone", Row: 1}, false) })
			}
			var first [2]*publish.Figures
			for seed := range uint64(20) {
				c := canary.NewTally(of)
				for _, i := range rand.New(rand.NewPCG(seed, 1)).Perm(len(steps)) {
					steps[i](c)
				}
				stable, candidate := c.Figures()
				if seed == 0 {
					first = [2]*publish.Figures{stable, candidate}
				}
				if n := stable.GetRatings(); !c.Enough() || n != candidate.GetRatings() || n != map[bool]uint64{true: 40, false: 20}[shadow] {
					t.Fatalf("seed %d: %v, %v", seed, stable, candidate)
				}
				if !near(first[0], stable) || !near(first[1], candidate) {
					t.Fatalf("seed %d: %v, %v, want %v", seed, stable, candidate, first)
				}
			}
			if shadow && (first[0].GetAuc() != 1 || first[1].GetAuc() != 0 || first[1].GetP99Ms() != 5 || first[0].GetP99Ms() < 1 || first[0].GetP99Ms() > 1.04) {
				t.Errorf("figures %v", first)
			}
		})
	}
}

// near compares figures whose sums may have been added up in another order.
func near(a, b *publish.Figures) bool {
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	if (a.Calibration == nil) != (b.Calibration == nil) || a.GetCalibration()-b.GetCalibration() > 1e-9 || b.GetCalibration()-a.GetCalibration() > 1e-9 {
		return false
	}
	a.Calibration, b.Calibration = nil, nil
	return proto.Equal(a, b)
}
