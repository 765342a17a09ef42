package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/loadtest/bench"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// turns plays prepared numbers and notes who was asked when.
type turns struct{ order []string }

func (t *turns) pass(who string, numbers ...[]float64) bench.Pass {
	return func(context.Context) ([]float64, error) {
		t.order = append(t.order, who)
		n := numbers[0]
		numbers = numbers[1:]
		return n, nil
	}
}

func compare(t *turns, c bench.Comparison) bench.Benchmark {
	return bench.Benchmark{Name: "fake", About: "nothing", Run: func(ctx context.Context, r *bench.Runner) error { return r.Compare(ctx, c) }}
}

func twoFigures(t *turns) bench.Comparison {
	return bench.Comparison{Name: "fake/n=1", Baseline: "peer", Rounds: 3, Warm: true,
		Figures: []bench.Figure{{Name: "rate", Unit: "x/s", Better: bench.Higher, Target: 2}, {Name: "p99", Unit: "ms", Better: bench.Lower, Target: 0.4}},
		Ours:    t.pass("ours", []float64{9999, 9999}, []float64{10, 1}, []float64{30, 2}, []float64{40, 5}),
		Peer:    t.pass("peer", []float64{1, 1}, []float64{10, 4}, []float64{15, 4}, []float64{50, 8})}
}

func TestTakesTurnsAndReportsMedians(t *testing.T) {
	var order turns
	var progress bytes.Buffer
	r := bench.Runner{Progress: &progress}
	got, err := r.Run(t.Context(), []bench.Benchmark{compare(&order, twoFigures(&order))})
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Fields(strings.Repeat("ours peer ", 4)); !slices.Equal(order.order, want) {
		t.Errorf("order %v, want %v", order.order, want)
	}
	if len(got) != 2 {
		t.Fatalf("%d results, want one per figure", len(got))
	}
	rate, p99 := got[0], got[1]
	if rate.Name != "fake/n=1 rate" || rate.Value != 30 || rate.BaselineValue != 15 || rate.Ratio != 2 || rate.Rounds != 3 ||
		rate.Low != 10 || rate.High != 40 || rate.BaselineLow != 10 || rate.BaselineHigh != 50 {
		t.Errorf("rate = %+v", rate)
	}
	if rate.Met == nil || !*rate.Met {
		t.Error("a ratio of 2 meets a floor of 2")
	}
	if p99.Value != 2 || p99.BaselineValue != 4 || p99.Ratio != 0.5 || p99.Met == nil || *p99.Met {
		t.Errorf("p99 = %+v, want a ratio of 0.5 that misses the ceiling of 0.4", p99)
	}
	if err := bench.Missed(got); err == nil || !strings.Contains(err.Error(), "fake/n=1 p99") || strings.Contains(err.Error(), "rate") {
		t.Errorf("Missed = %v, want the p99 alone", err)
	}
	if !strings.Contains(progress.String(), "fake/n=1 rate: 30.0 x/s") {
		t.Errorf("progress says %q", progress.String())
	}
	var table bytes.Buffer
	if err := bench.WriteTable(&table, got); err != nil || strings.Count(table.String(), "\n") != 4 || !strings.Contains(table.String(), "≤ 0.40 MISSED") {
		t.Errorf("table, %v:\n%s", err, table.String())
	}
}

func TestJSONShape(t *testing.T) {
	var order turns
	c := twoFigures(&order)
	c.Figures[1].Target = 0
	r := bench.Runner{}
	got, err := r.Run(t.Context(), []bench.Benchmark{compare(&order, c)})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := bench.WriteJSON(&out, got); err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"name": "fake/n=1 rate", "value": 30.0, "unit": "x/s", "baseline": "peer", "baseline_value": 15.0,
		"ratio": 2.0, "target": 2.0, "better": "higher", "met": true, "rounds": 3.0} {
		if list[0][key] != want {
			t.Errorf("%s = %v, want %v", key, list[0][key], want)
		}
	}
	if v, ok := list[1]["target"]; !ok || v != nil || list[1]["met"] != nil {
		t.Errorf("without a target: %v", list[1])
	}
	out.Reset()
	if err := bench.WriteJSON(&out, nil); err != nil || strings.TrimSpace(out.String()) != "[]" {
		t.Errorf("no results are %q, %v; want an empty list", out.String(), err)
	}
}

func TestWithoutBaselines(t *testing.T) {
	var order turns
	r := bench.Runner{OursOnly: true}
	got, err := r.Run(t.Context(), []bench.Benchmark{compare(&order, twoFigures(&order))})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(order.order, "peer") || got[0].Value != 30 || got[0].Ratio.Known() || got[0].Met != nil {
		t.Errorf("%v, %+v", order.order, got[0])
	}
}

func TestSelect(t *testing.T) {
	all := []bench.Benchmark{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	got, err := bench.Select(all, []string{"c", "a", "c"})
	if err != nil || len(got) != 2 || got[0].Name != "a" || got[1].Name != "c" {
		t.Errorf("Select = %v, %v", got, err)
	}
	if got, err := bench.Select(all, nil); err != nil || len(got) != 3 {
		t.Errorf("no names: %v, %v", got, err)
	}
	if _, err := bench.Select(all, []string{"a", "d"}); !errors.Is(err, bench.ErrUnknown) || !strings.Contains(err.Error(), `"d"`) {
		t.Errorf("Select(d) = %v", err)
	}
}

func TestStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var order turns
	c := twoFigures(&order)
	ours := c.Ours
	c.Ours = func(ctx context.Context) ([]float64, error) {
		if len(order.order) == 4 {
			cancel()
		}
		return ours(ctx)
	}
	r := bench.Runner{}
	b := compare(&order, c)
	got, err := r.Run(ctx, []bench.Benchmark{b, b})
	if !errors.Is(err, context.Canceled) || len(got) != 0 || len(order.order) != 5 {
		t.Errorf("Run = %v, %v after %v", got, err, order.order)
	}
}

func TestRefusesPassesThatMeasureNothing(t *testing.T) {
	broken := errors.New("broken")
	for name, numbers := range map[string][]float64{"zero": {0}, "not a number": {math.NaN()}, "infinite": {math.Inf(1)}, "too few": {}} {
		c := bench.Comparison{Name: "x", Figures: []bench.Figure{{Unit: "u", Better: bench.Higher}},
			Ours: func(context.Context) ([]float64, error) { return numbers, nil }}
		r := bench.Runner{}
		if got, err := r.Run(t.Context(), []bench.Benchmark{compare(nil, c)}); err == nil {
			t.Errorf("%s: %v", name, got)
		}
		c.Ours = func(context.Context) ([]float64, error) { return []float64{1}, nil }
		c.Peer = func(context.Context) ([]float64, error) { return nil, broken }
		if _, err := r.Run(t.Context(), []bench.Benchmark{compare(nil, c)}); !errors.Is(err, broken) || !strings.Contains(err.Error(), "baseline") {
			t.Errorf("a broken baseline is %v", err)
		}
	}
}
