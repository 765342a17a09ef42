package nn

import "math"

// Poison fills the lane's memory with NaN: no run reads what it has not written.
func (l *Lane) Poison() {
	for _, s := range [][]float32{l.samples[:cap(l.samples)], l.fixed[:cap(l.fixed)]} {
		for i := range s {
			s[i] = float32(math.NaN())
		}
	}
}
