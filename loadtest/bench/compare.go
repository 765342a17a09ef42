package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/monolith-go/monolith/loadtest/peers"
	"github.com/monolith-go/monolith/loadtest/report"
)

// Result is one figure beside its baseline. JSON has null for what was not measured.
type Result struct {
	Name          string        `json:"name"` // benchmark, size and figure: append/callers=64,n=10000
	Value         report.Figure `json:"value"`
	Unit          string        `json:"unit"`
	Baseline      string        `json:"baseline"` // what was measured beside it
	BaselineValue report.Figure `json:"baseline_value"`
	Ratio         report.Figure `json:"ratio"`  // Value / BaselineValue
	Target        report.Figure `json:"target"` // of the ratio: a floor, or a ceiling where lower is better
	Better        Direction     `json:"better"`
	Bound         report.Figure `json:"bound"` // of Value itself: a floor, or a ceiling where lower is better
	Met           *bool         `json:"met"`   // both; null without either
	Rounds        int           `json:"rounds"`
	Low           report.Figure `json:"low"` // lowest and highest round of Value
	High          report.Figure `json:"high"`
	BaselineLow   report.Figure `json:"baseline_low"`
	BaselineHigh  report.Figure `json:"baseline_high"`
}

// Direction says which way a figure improves.
type Direction string

const (
	Higher Direction = "higher"
	Lower  Direction = "lower"
)

// Figure is one of the numbers that a pass yields.
type Figure struct {
	Name   string // appended to the comparison's name; "" for the only one
	Unit   string
	Better Direction
	Target float64 // of the ratio; 0: none
	Least  float64 // of the value itself, where higher is better; 0: none
	Most   float64 // the same where lower is better
}

// Pass does the work once and returns one number per figure.
type Pass func(ctx context.Context) ([]float64, error)

// PerSecond makes a pass of work on n things: how many of them in a second.
func PerSecond(n int, work func(context.Context) error) Pass {
	return func(ctx context.Context) ([]float64, error) {
		began := time.Now()
		if err := work(ctx); err != nil {
			return nil, err
		}
		return []float64{float64(n) / time.Since(began).Seconds()}, nil
	}
}

// Comparison is a pass of ours and one of a peer over the same work.
type Comparison struct {
	Name     string
	Baseline string
	Figures  []Figure
	Rounds   int  // default 3
	Warm     bool // one pass of each beforehand that does not count
	Ours     Pass
	Peer     Pass // nil: there is none here
}

// Compare takes turns: ours, peer, ours, peer. It adds one result per figure.
func (r *Runner) Compare(ctx context.Context, c Comparison) error {
	if c.Rounds <= 0 {
		c.Rounds = 3
	}
	rounds := c.Rounds
	if c.Warm {
		rounds++
	}
	ours, peer := make([][]float64, len(c.Figures)), make([][]float64, len(c.Figures))
	for i := range rounds {
		counts := !c.Warm || i > 0
		if err := c.take(ctx, c.Ours, ours, counts); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		if r.OursOnly || c.Peer == nil {
			continue
		}
		err := c.take(ctx, c.Peer, peer, counts)
		if errors.Is(err, peers.ErrSlow) {
			r.Say("  %s: %v", c.Name, err)
			c.Peer, peer = nil, make([][]float64, len(c.Figures))
		} else if err != nil {
			return fmt.Errorf("%s: baseline: %w", c.Name, err)
		}
	}
	for i, f := range c.Figures {
		res := result(c, f, ours[i], peer[i])
		r.results = append(r.results, res)
		r.Say("  %s", res)
	}
	return nil
}

// take makes one pass and adds its numbers to what each figure has.
func (c *Comparison) take(ctx context.Context, p Pass, to [][]float64, counts bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	got, err := p(ctx)
	if err != nil {
		return err
	}
	if len(got) != len(c.Figures) {
		return fmt.Errorf("a pass of %d figures gave %d numbers", len(c.Figures), len(got))
	}
	for i, v := range got {
		if !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("figure %q is %v: nothing was measured", c.Figures[i].Name, v)
		}
		if counts {
			to[i] = append(to[i], v)
		}
	}
	return nil
}

func result(c Comparison, f Figure, ours, peer []float64) Result {
	name := c.Name
	if f.Name != "" {
		name += " " + f.Name
	}
	u := report.Unknown()
	res := Result{Name: name, Unit: f.Unit, Baseline: c.Baseline, Better: f.Better, Rounds: len(ours),
		Value: median(ours), Low: report.Figure(slices.Min(ours)), High: report.Figure(slices.Max(ours)),
		BaselineValue: u, BaselineLow: u, BaselineHigh: u, Ratio: u, Target: u, Bound: u}
	if f.Target > 0 {
		res.Target = report.Figure(f.Target)
	}
	judge := func(met bool) {
		met = met && (res.Met == nil || *res.Met)
		res.Met = &met
	}
	switch {
	case f.Least > 0:
		res.Bound = report.Figure(f.Least)
		judge(float64(res.Value) >= f.Least)
	case f.Most > 0:
		res.Bound = report.Figure(f.Most)
		judge(float64(res.Value) <= f.Most)
	}
	if len(peer) == 0 {
		return res
	}
	res.BaselineValue, res.BaselineLow, res.BaselineHigh = median(peer), report.Figure(slices.Min(peer)), report.Figure(slices.Max(peer))
	res.Ratio = res.Value / res.BaselineValue
	if f.Target > 0 {
		met := float64(res.Ratio) >= f.Target
		if f.Better == Lower {
			met = float64(res.Ratio) <= f.Target
		}
		judge(met)
	}
	return res
}

// median is the middle one, or the mean of the two in the middle.
func median(v []float64) report.Figure {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	if n == 0 {
		return report.Unknown()
	}
	return report.Figure((s[(n-1)/2] + s[n/2]) / 2)
}

// Missed joins the results that are on the wrong side of their target; nil: none.
func Missed(rs []Result) error {
	var errs []error
	for _, r := range rs {
		if r.Met != nil && !*r.Met {
			errs = append(errs, fmt.Errorf("%s: %s %s, ratio %s, misses %s", r.Name, short(r.Value), r.Unit, ratio(r.Ratio), r.target()))
		}
	}
	return errors.Join(errs...)
}
