package dense

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
		if d%16 == 0 && chosenFM.back != nil {
			chosenFM.back(emb, sums, y, w.demb[lo*f*d:hi*f*d], f, d)
		} else {
			pairsBackGo(emb, sums, y, w.demb[lo*f*d:hi*f*d], f, d)
		}
		return
	}
	if d%16 == 0 && chosenFM.forward != nil {
		chosenFM.forward(emb, sums, y, f, d)
	} else {
		pairsGo(emb, sums, y, f, d)
	}
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

// fmBackend is one implementation for dims that are multiples of 16; nil is plain Go.
type fmBackend struct {
	name    string
	forward func(emb, sums, y []float32, fields, dim int)
	back    func(emb, sums, dy, demb []float32, fields, dim int)
}

var chosenFM = fastestFM()

// PairsBackend names the implementation of DeepFM's second-order term in use: "plain" or
// "avx512".
func PairsBackend() string { return chosenFM.name }

// pairsGo sets sums to each sample's sum of embeddings and adds half of its square less the
// embeddings' squares to y.
func pairsGo(emb, sums, y []float32, fields, dim int) {
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
		y[b] += 0.5 * (square - squares)
	}
}

// pairsBackGo adds dy * (sum - e) to the gradient of every embedding e.
func pairsBackGo(emb, sums, dy, demb []float32, fields, dim int) {
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
