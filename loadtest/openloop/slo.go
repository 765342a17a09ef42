package openloop

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/loadtest/report"
)

// Goal is a bound on a figure of a run, such as p99<2ms.
type Goal struct {
	text  string
	of    func(Result) report.Figure
	below bool
	equal bool
	bound float64
}

var goalText = regexp.MustCompile(`^(p\d+(?:\.\d+)?|mean|max|late|rate|errors)(<=|>=|<|>)(.+)$`)

// ParseGoals reads goals with commas between them: p<percent>, mean, max and late with a duration,
// rate with calls per second, errors with a share in percent; each with <, <=, > or >=.
func ParseGoals(text string) ([]Goal, error) {
	var all []Goal
	for _, part := range strings.Split(text, ",") {
		part = strings.ReplaceAll(part, " ", "")
		if part == "" {
			continue
		}
		g, err := parseGoal(part)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

func parseGoal(text string) (Goal, error) {
	m := goalText.FindStringSubmatch(text)
	if m == nil {
		return Goal{}, fmt.Errorf("%q is no goal: write such as p99<2ms, mean<=1ms, rate>400 or errors<1%%", text)
	}
	g := Goal{text: text, below: m[2][0] == '<', equal: strings.HasSuffix(m[2], "=")}
	var err error
	switch m[1] {
	case "rate":
		g.of = func(r Result) report.Figure { return r.Achieved }
		g.bound, err = strconv.ParseFloat(m[3], 64)
	case "errors":
		g.of = func(r Result) report.Figure {
			return report.Figure(100 * float64(r.Calls-r.Answered) / float64(max(r.Calls, 1)))
		}
		g.bound, err = strconv.ParseFloat(strings.TrimSuffix(m[3], "%"), 64)
	default:
		var d time.Duration
		if d, err = time.ParseDuration(m[3]); err == nil {
			g.bound = float64(d) / float64(time.Millisecond)
		}
		g.of = latencyOf(m[1])
	}
	if err != nil {
		return Goal{}, fmt.Errorf("the goal %q: %w", text, err)
	}
	if p, ok := strings.CutPrefix(m[1], "p"); ok {
		if percent, _ := strconv.ParseFloat(p, 64); percent > 100 {
			return Goal{}, fmt.Errorf("the goal %q is of a percentile above 100", text)
		}
	}
	return g, nil
}

func latencyOf(name string) func(Result) report.Figure {
	switch name {
	case "mean":
		return func(r Result) report.Figure { return r.Mean }
	case "max":
		return func(r Result) report.Figure { return r.Max }
	case "late":
		return func(r Result) report.Figure { return r.LateP99 }
	}
	percent, _ := strconv.ParseFloat(strings.TrimPrefix(name, "p"), 64) // its form is checked
	return func(r Result) report.Figure { return r.At(percent) }
}

// Missed says why a result does not reach a goal; "" if it does.
func (g Goal) Missed(r Result) string {
	got := g.of(r)
	switch {
	case !got.Known():
		return g.text + " cannot be told: nothing was answered"
	case g.below && float64(got) < g.bound, !g.below && float64(got) > g.bound, g.equal && float64(got) == g.bound:
		return ""
	}
	return fmt.Sprintf("%s is missed: it is %.4g", g.text, float64(got))
}
