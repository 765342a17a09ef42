// Package eval measures predictions: how well they rank, and how a latency is spread.
package eval

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// AUC is the probability that a random positive scores above a random negative, ties
// counting half, computed exactly from ranks. It is NaN when a class is missing or a
// score is NaN. It panics when the lengths differ.
func AUC(scores []float64, labels []bool) float64 {
	if len(scores) != len(labels) {
		panic(fmt.Sprintf("eval: %d scores for %d labels", len(scores), len(labels)))
	}
	order := make([]int, len(scores))
	for i, s := range scores {
		if math.IsNaN(s) {
			return math.NaN()
		}
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[a], scores[b]) })

	// Twice the number of ordered pairs: whole numbers, so no rounding before the end.
	var pairs2, neg, pos uint64
	for i := 0; i < len(order); {
		j := i
		var p, n uint64 // of this group of equal scores
		for ; j < len(order) && scores[order[j]] == scores[order[i]]; j++ {
			if labels[order[j]] {
				p++
			} else {
				n++
			}
		}
		pairs2 += 2*p*neg + p*n
		pos, neg = pos+p, neg+n
		i = j
	}
	if pos == 0 || neg == 0 {
		return math.NaN()
	}
	return float64(pairs2) / 2 / float64(pos) / float64(neg)
}

// Calibration is the mean score less the mean label: above 0 where scores promise too much. It is
// NaN for no scores. It panics when the lengths differ.
func Calibration(scores []float64, labels []bool) float64 {
	if len(scores) != len(labels) {
		panic(fmt.Sprintf("eval: %d scores for %d labels", len(scores), len(labels)))
	}
	sum := 0.0
	for i, s := range scores {
		if sum += s; labels[i] {
			sum--
		}
	}
	return sum / float64(len(scores))
}

// Point is the AUC of one window of a stream of predictions.
type Point struct {
	End   int     // predictions seen when the window closed
	Count int     // of them scored, within the window
	AUC   float64 // NaN when the window lacks a class
}

// Windows is progressive validation over time: the AUC of each run of size
// predictions, and of a rest of at least half a window. NaN scores (never predicted)
// are left out of their window. size must be positive.
func Windows(scores []float64, labels []bool, size int) []Point {
	if size <= 0 {
		panic(fmt.Sprintf("eval: window of %d", size))
	}
	var points []Point
	for from := 0; from < len(scores); from += size {
		to := min(from+size, len(scores))
		if to-from < (size+1)/2 {
			break
		}
		s, l := Scored(scores[from:to], labels[from:to])
		points = append(points, Point{End: to, Count: len(s), AUC: AUC(s, l)})
	}
	return points
}

// Scored leaves out what has no score (NaN).
func Scored(scores []float64, labels []bool) ([]float64, []bool) {
	s, l := make([]float64, 0, len(scores)), make([]bool, 0, len(labels))
	for i, v := range scores {
		if !math.IsNaN(v) {
			s, l = append(s, v), append(l, labels[i])
		}
	}
	return s, l
}

// Percentile is the nearest-rank percentile, 0 < p <= 100, of a sorted sample: the
// smallest value that at least p percent do not exceed. NaN when the sample is empty.
func Percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	// The small step back keeps a rank such as 99.9% of 1000 from rounding up to 1000.
	rank := int(math.Ceil(p/100*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
