package densetest

import "math"

// Sigmoid is 1 / (1 + exp(-x)), computed in float64.
func Sigmoid(x float32) float32 {
	return float32(1 / (1 + math.Exp(-float64(x))))
}

func sigmoids(z []float32) {
	for i, v := range z {
		z[i] = Sigmoid(v)
	}
}

// SigmoidCrossEntropy returns the mean over the batch of the cross entropy between
// labels (0 to 1) and Sigmoid(logits), and sets dlogits to that mean's gradient by
// logit, (Sigmoid(logit)-label)/n. The three lengths are equal (a difference panics);
// of an empty batch the mean is 0.
func SigmoidCrossEntropy(logits, labels, dlogits []float32) (meanLoss float32) {
	n := len(logits)
	if n == 0 {
		return 0
	}
	labels, dlogits = labels[:n:n], dlogits[:n:n]
	sum := 0.0
	for i, l := range logits {
		z, y := float64(l), float64(labels[i])
		// max(z,0) - z*y + log(1+exp(-|z|)) does not overflow.
		sum += math.Max(z, 0) - z*y + math.Log1p(math.Exp(-math.Abs(z)))
		dlogits[i] = float32((1/(1+math.Exp(-z)) - y) / float64(n))
	}
	return float32(sum / float64(n))
}
