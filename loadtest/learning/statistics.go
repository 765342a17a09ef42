package learning

import "math"

// Estimate is the mean of several seeds, with half the width of its 95 % interval; 0 for one seed.
type Estimate struct {
	Mean float64 `json:"mean"`
	Half float64 `json:"half"`
}

// student is the 97.5 % quantile of Student's t by degrees of freedom.
var student = [...]float64{0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262}

// MaxSeeds is the most that an interval is known for.
const MaxSeeds = len(student)

// NewEstimate is that of at most MaxSeeds values.
func NewEstimate(x []float64) (e Estimate) {
	for _, v := range x {
		e.Mean += v / float64(len(x))
	}
	if len(x) < 2 {
		return e
	}
	var squares float64
	for _, v := range x {
		squares += (v - e.Mean) * (v - e.Mean)
	}
	n := float64(len(x))
	e.Half = student[len(x)-1] * math.Sqrt(squares/(n-1)/n)
	return e
}

// Differences are those of a less b, seed by seed.
func Differences(a, b []float64) []float64 {
	d := make([]float64, len(a))
	for i := range d {
		d[i] = a[i] - b[i]
	}
	return d
}
