package eval

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// pairs is the definition of AUC, in quadratic time.
func pairs(scores []float64, labels []bool) float64 {
	var won, all float64
	for i, p := range scores {
		for j, n := range scores {
			if !labels[i] || labels[j] {
				continue
			}
			all++
			switch {
			case p > n:
				won++
			case p == n:
				won += 0.5
			}
		}
	}
	return won / all // 0/0 is NaN
}

func TestAUC(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, tc := range []struct {
		name   string
		scores []float64
		labels []bool
		want   float64
	}{
		{"nothing", nil, nil, nan},
		{"one class", []float64{1, 2}, []bool{true, true}, nan},
		{"perfect", []float64{1, 2, 3, 4}, []bool{false, false, true, true}, 1},
		{"reversed", []float64{4, 3, 2, 1}, []bool{false, false, true, true}, 0},
		{"all equal", []float64{5, 5, 5}, []bool{false, true, true}, 0.5},
		{"one tie", []float64{1, 2, 2, 3}, []bool{false, true, false, true}, 0.875},
		{"infinite", []float64{-inf, inf, 0}, []bool{false, true, true}, 1},
		{"zeros of both signs tie", []float64{math.Copysign(0, -1), 0}, []bool{false, true}, 0.5},
		{"not a number", []float64{1, nan}, []bool{false, true}, nan},
	} {
		got := AUC(tc.scores, tc.labels)
		if got != tc.want && !(math.IsNaN(got) && math.IsNaN(tc.want)) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestAUCIsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(t, "n")
		scores, labels := make([]float64, n), make([]bool, n)
		for i := range n {
			scores[i] = float64(rapid.IntRange(0, 9).Draw(t, "score")) / 9 // many ties
			labels[i] = rapid.Bool().Draw(t, "label")
		}
		got, want := AUC(scores, labels), pairs(scores, labels)
		if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > 1e-12 {
			t.Fatalf("AUC = %v, by pairs %v", got, want)
		}
	})
}

func TestWindows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var scores []float64
	var labels []bool
	for i := range 25 {
		labels = append(labels, rng.IntN(2) == 0)
		scores = append(scores, rng.Float64())
		if i == 3 {
			scores[i] = math.NaN()
		}
	}
	got := Windows(scores, labels, 10)
	if len(got) != 3 || got[0].End != 10 || got[0].Count != 9 || got[1].Count != 10 || got[2].End != 25 || got[2].Count != 5 {
		t.Fatalf("windows: %+v", got)
	}
	if want := pairs(scores[10:20], labels[10:20]); got[1].AUC != want {
		t.Errorf("second window: %v, want %v", got[1].AUC, want)
	}
	if got := Windows(scores[:24], labels[:24], 10); len(got) != 2 {
		t.Errorf("a rest of 4 of 10 became a window: %+v", got)
	}
}

func TestPercentile(t *testing.T) {
	var thousand []float64
	for i := range 1000 {
		thousand = append(thousand, float64(i+1))
	}
	for _, tc := range []struct {
		sample []float64
		p      float64
		want   float64
	}{
		{thousand, 50, 500}, {thousand, 99, 990}, {thousand, 99.9, 999}, {thousand, 100, 1000}, {thousand, 0.01, 1},
		{[]float64{7}, 50, 7}, {[]float64{1, 2}, 50, 1}, {[]float64{1, 2}, 51, 2},
	} {
		if got := Percentile(tc.sample, tc.p); got != tc.want {
			t.Errorf("p%v of %d: %v, want %v", tc.p, len(tc.sample), got, tc.want)
		}
	}
	if got := Percentile(nil, 50); !math.IsNaN(got) {
		t.Errorf("percentile of nothing: %v", got)
	}
}

func TestCalibration(t *testing.T) {
	for _, tc := range []struct {
		scores []float64
		labels []bool
		want   float64
	}{
		{[]float64{0.5, 0.5}, []bool{true, false}, 0},
		{[]float64{1, 0.5, 0.75, 0.75}, []bool{true, false, false, false}, 0.5},
		{[]float64{0.25, 0}, []bool{true, true}, -0.875},
		{nil, nil, math.NaN()},
	} {
		if got := Calibration(tc.scores, tc.labels); got != tc.want && !(math.IsNaN(got) && math.IsNaN(tc.want)) {
			t.Errorf("%v of %v: %v, want %v", tc.scores, tc.labels, got, tc.want)
		}
	}
}
