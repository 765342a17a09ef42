package dense

import "github.com/monolith-go/monolith/kernels/internal/pairs"

// fmGrain is how many samples a thread takes at once.
const fmGrain = 64

// fmWork is the second-order term of a batch, forward, or backward where demb is set.
type fmWork struct {
	m           *DeepFM
	emb, linear []float32
	sums        []float32
	logits      []float32 // forward: added to; backward: their gradients
	demb        []float32
}

// Do works on the samples lo to hi.
func (w *fmWork) Do(lo, hi int) {
	f, d := w.m.fields, w.m.dim
	emb, sums, y := w.emb[lo*f*d:hi*f*d], w.sums[lo*d:hi*d], w.logits[lo:hi]
	if w.demb != nil {
		pairs.Backward(emb, sums, y, w.demb[lo*f*d:hi*f*d], f, d)
		return
	}
	pairs.Forward(emb, sums, y, f, d)
	if w.linear == nil {
		return
	}
	for b := range y {
		sum := float32(0)
		for _, v := range w.linear[(lo+b)*f : (lo+b+1)*f] {
			sum += v
		}
		y[b] += sum
	}
}

// PairsBackend names the implementation of DeepFM's second-order term in use: "plain" or
// "avx512".
func PairsBackend() string { return pairs.Backend() }
