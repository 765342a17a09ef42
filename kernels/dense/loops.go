package dense

import (
	"math"

	"github.com/monolith-go/monolith/kernels/vec"
)

// gemv adds x W to z: W is len(x) rows of len(z).
func gemv(w, x, z []float32) {
	n := len(z)
	if n == 1 {
		z[0] += vec.Dot(w, x)
		return
	}
	i := 0
	for ; i+4 <= len(x); i += 4 {
		r := w[i*n : (i+4)*n]
		vec.Axpy4(x[i], x[i+1], x[i+2], x[i+3], r[:n], r[n:2*n], r[2*n:3*n], r[3*n:], z)
	}
	for ; i < len(x); i++ {
		vec.Axpy(x[i], w[i*n:(i+1)*n], z)
	}
}

// outer adds x^T dz to dk: dk[i,:] += sum over the batch of x[b,i] * dz[b,:].
func outer(x, dz []float32, batch, in, out int, dk []float32) {
	if out == 1 {
		for b := range batch {
			vec.Axpy(dz[b], x[b*in:(b+1)*in], dk)
		}
		return
	}
	for i := range in {
		row := dk[i*out : (i+1)*out]
		b := 0
		for ; b+4 <= batch; b += 4 {
			d := dz[b*out : (b+4)*out]
			vec.Axpy4(x[b*in+i], x[(b+1)*in+i], x[(b+2)*in+i], x[(b+3)*in+i],
				d[:out], d[out:2*out], d[2*out:3*out], d[3*out:], row)
		}
		for ; b < batch; b++ {
			vec.Axpy(x[b*in+i], dz[b*out:(b+1)*out], row)
		}
	}
}

// back sets dx to dz W^T: dx[b,i] is the product of W's row i with dz[b,:].
func back(w, dz []float32, batch, in, out int, dx []float32) {
	for b := range batch {
		d, g := dx[b*in:(b+1)*in], dz[b*out:(b+1)*out]
		for i := range d {
			d[i] = vec.Dot(w[i*out:(i+1)*out], g)
		}
	}
}

func activate(a Activation, z []float32) {
	switch a {
	case ActReLU:
		for i, v := range z {
			if v < 0 {
				z[i] = 0
			}
		}
	case ActSigmoid:
		for i, v := range z {
			z[i] = Sigmoid(v)
		}
	}
}

// slope multiplies dy by the activation's derivative, expressed in its output y.
func slope(a Activation, y, dy []float32) {
	switch a {
	case ActReLU:
		for i, v := range y {
			if v <= 0 {
				dy[i] = 0
			}
		}
	case ActSigmoid:
		for i, v := range y {
			dy[i] *= v * (1 - v)
		}
	}
}

// Sigmoid is 1 / (1 + exp(-x)), computed in float64.
func Sigmoid(x float32) float32 {
	return float32(1 / (1 + math.Exp(-float64(x))))
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
