package publish_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/publish"
)

func TestCanaryBounds(t *testing.T) {
	good := &publish.CanaryDeclared{ModelName: "m", Stable: 7, Candidate: 9, Share: 0.1, ExpiresMs: 1, Rule: &publish.Rule{MinRatings: 1}}
	if err := good.Validate(); err != nil {
		t.Fatalf("a canary as it should be: %v", err)
	}
	for says, spoil := range map[string]func(c *publish.CanaryDeclared){
		"versions stable":           func(c *publish.CanaryDeclared) { c.Stable = 0 },
		"versions stable and":       func(c *publish.CanaryDeclared) { c.Candidate = -1 },
		"its own candidate":         func(c *publish.CanaryDeclared) { c.Candidate = 7 },
		"share is 0":                func(c *publish.CanaryDeclared) { c.Share = 0 },
		"share is 1.1":              func(c *publish.CanaryDeclared) { c.Share = 1.1 },
		"share is NaN":              func(c *publish.CanaryDeclared) { c.Share = math.NaN() },
		"mode 2":                    func(c *publish.CanaryDeclared) { c.Mode = 2 },
		"expires":                   func(c *publish.CanaryDeclared) { c.ExpiresMs = 0 },
		"min_ratings is 0":          func(c *publish.CanaryDeclared) { c.Rule = nil },
		"min_ratings is 1000001":    func(c *publish.CanaryDeclared) { c.Rule.MinRatings = publish.MaxRatings + 1 },
		"max_auc_loss is -0.1":      func(c *publish.CanaryDeclared) { c.Rule.MaxAucLoss = -0.1 },
		"max_auc_loss is NaN":       func(c *publish.CanaryDeclared) { c.Rule.MaxAucLoss = math.NaN() },
		"max_calibration_gap is 2":  func(c *publish.CanaryDeclared) { c.Rule.MaxCalibrationGap = 2 },
		"max_p99_ratio is +Inf":     func(c *publish.CanaryDeclared) { c.Rule.MaxP99Ratio = math.Inf(1) },
		"ratings begin in":          func(c *publish.CanaryDeclared) { c.Ratings = map[int32]int64{-1: 0} },
		"predictions begin in part": func(c *publish.CanaryDeclared) { c.Predictions = map[int32]int64{0: -1} },
	} {
		c := proto.CloneOf(good)
		spoil(c)
		if err := c.Validate(); !errors.Is(err, events.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestVerdictBounds(t *testing.T) {
	good := &publish.CanaryDecided{ModelName: "m", Candidate: 9, Verdict: publish.CanaryDecided_EXPIRED, Reason: "r"}
	validate := func(c *publish.CanaryDecided, aggregate string) error {
		return (&publish.Event{Body: &publish.Event_CanaryDecided{CanaryDecided: c}}).Validate(aggregate)
	}
	if err := validate(good, "m"); err != nil {
		t.Fatalf("a verdict as it should be: %v", err)
	}
	if err := validate(good, "other"); !errors.Is(err, events.ErrInvalid) {
		t.Errorf("another model's verdict: %v", err)
	}
	for says, spoil := range map[string]func(c *publish.CanaryDecided){
		"verdict 0":       func(c *publish.CanaryDecided) { c.Verdict = 0 },
		"verdict 4":       func(c *publish.CanaryDecided) { c.Verdict = 4 },
		"its candidate":   func(c *publish.CanaryDecided) { c.Candidate = 0 },
		"needs its reaso": func(c *publish.CanaryDecided) { c.Reason = "" },
		"AUC of stable":   func(c *publish.CanaryDecided) { c.StableFigures = &publish.Figures{Auc: proto.Float64(math.NaN())} },
		"tile of the lat": func(c *publish.CanaryDecided) {
			c.CandidateFigures = &publish.Figures{P99Ms: proto.Float64(math.Inf(1))}
		},
	} {
		c := proto.CloneOf(good)
		spoil(c)
		if err := validate(c, "m"); !errors.Is(err, events.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
