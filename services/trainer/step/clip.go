package step

import "math"

// clip scales dense gradients, all by the same factor, to a Euclidean norm of at most so much
// over all of them; 0 leaves them. The sum is added up in order, so that it depends on the
// gradients alone. Where one is no finite number all are none after it, which no shard takes.
func clip(grads [][]float32, most float32) {
	if most == 0 {
		return
	}
	sum := 0.0
	for _, v := range grads {
		for _, g := range v {
			sum += float64(g) * float64(g)
		}
	}
	norm := math.Sqrt(sum)
	if norm <= float64(most) {
		return
	}
	scale := float32(float64(most) / norm)
	for _, v := range grads {
		for i := range v {
			v[i] *= scale
		}
	}
}
