// Package bench measures the hot paths beside a baseline that a reader knows, in the
// same run on the same machine: the two take turns, the median of several rounds is the
// figure, and the spread is shown.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ErrUnknown is a benchmark that does not exist.
var ErrUnknown = errors.New("unknown benchmark")

// Benchmark measures one path at one or more sizes.
type Benchmark struct {
	Name  string
	About string // one line
	Run   func(ctx context.Context, r *Runner) error
}

// Runner runs benchmarks one after the other.
type Runner struct {
	// Progress hears a line whenever something has been measured; nil: nothing.
	Progress io.Writer
	// OursOnly leaves the baselines out, for a profile that shows nothing else.
	OursOnly bool

	results []Result
}

// Select returns the benchmarks named, in the order of all; no names: all of them.
func Select(all []Benchmark, names []string) ([]Benchmark, error) {
	var known []string
	for _, b := range all {
		known = append(known, b.Name)
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("%w %q: there are %s", ErrUnknown, n, strings.Join(known, ", "))
		}
	}
	if len(names) == 0 {
		return all, nil
	}
	var out []Benchmark
	for _, b := range all {
		if slices.Contains(names, b.Name) {
			out = append(out, b)
		}
	}
	return out, nil
}

// Run measures bs and returns what they reported. When one fails or ctx ends, the
// results so far come back with the error.
func (r *Runner) Run(ctx context.Context, bs []Benchmark) ([]Result, error) {
	r.results = nil
	for _, b := range bs {
		if err := ctx.Err(); err != nil {
			return r.results, err
		}
		r.Say("%s: %s", b.Name, b.About)
		if err := b.Run(ctx, r); err != nil {
			return r.results, fmt.Errorf("benchmark %s: %w", b.Name, err)
		}
	}
	return r.results, nil
}

// Say writes a line to Progress, if somebody listens.
func (r *Runner) Say(format string, args ...any) {
	if r.Progress != nil {
		fmt.Fprintf(r.Progress, format+"\n", args...)
	}
}
