// Package pairs is the second-order term of a factorization machine: half of |sum e|² − sum |e|²
// over the embeddings e of a sample, which is the sum of their products two by two.
//
// NaN and Inf follow IEEE 754; as Inf less Inf is NaN, a sample with an infinite embedding has NaN. A
// sample's bits depend on the sample and on the backend only: AVX-512, which takes
// dimensions that are multiples of 16, fuses multiplications with additions and sums in 16 lanes,
// plain Go rounds each operation.
package pairs

// backend is one implementation for dims that are multiples of 16; nil is plain Go.
type backend struct {
	name    string
	forward func(emb, sums, y []float32, fields, dim int)
	back    func(emb, sums, dy, demb []float32, fields, dim int)
}

var chosen = fastest()

// Forward adds the term of each sample to y. emb is len(y) x fields x dim, sums len(y) x dim, which is set
// to each sample's sum of embeddings.
func Forward(emb, sums, y []float32, fields, dim int) {
	if dim%16 == 0 && chosen.forward != nil {
		chosen.forward(emb, sums, y, fields, dim)
	} else {
		forwardGo(emb, sums, y, fields, dim)
	}
}

// Backward adds dy · (sum − e), the gradient by the embedding e, to demb. sums are Forward's.
func Backward(emb, sums, dy, demb []float32, fields, dim int) {
	if dim%16 == 0 && chosen.back != nil {
		chosen.back(emb, sums, dy, demb, fields, dim)
	} else {
		backwardGo(emb, sums, dy, demb, fields, dim)
	}
}

func forwardGo(emb, sums, y []float32, fields, dim int) {
	for b := range y {
		s := sums[b*dim : (b+1)*dim]
		clear(s)
		squares := float32(0)
		for f := range fields {
			for i, v := range emb[(b*fields+f)*dim : (b*fields+f+1)*dim] {
				s[i] += v
				squares += float32(v * v)
			}
		}
		square := float32(0)
		for _, v := range s {
			square += float32(v * v)
		}
		y[b] += float32(0.5 * (square - squares))
	}
}

func backwardGo(emb, sums, dy, demb []float32, fields, dim int) {
	for b, g := range dy {
		s := sums[b*dim : (b+1)*dim]
		for f := range fields {
			at := (b*fields + f) * dim
			e, d := emb[at:at+dim], demb[at:at+dim]
			for i, v := range s {
				d[i] += float32(g * (v - e[i]))
			}
		}
	}
}
