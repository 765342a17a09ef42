package nn

import (
	"math"

	"github.com/monolith-go/monolith/kernels/vec"
)

// inBatch is a loss of samples with all others. A sample's term lies aside as a float64 in two floats, so that all
// threads make terms and one adds them up in order.
type inBatch struct {
	term  rowKernel
	count func(l *Lane, s *step) float64 // of what the terms' sum is the mean's; nil for samples
}

func (*inBatch) aside() int { return 2 }

func (k *inBatch) run(l *Lane, s *step) error {
	l.terms(s, k.term)
	out, count, sum := l.views[s.out].v, float64(l.n), 0.0
	if k.count != nil {
		count = k.count(l, s)
	}
	out[0] = 0
	if count == 0 {
		return nil
	}
	for i := range l.n {
		sum += whole(l.views[s.aside].row(i))
	}
	out[0] = float32(sum / count)
	return nil
}

// terms has f compute all samples, each of which looks at all.
func (l *Lane) terms(s *step, f rowKernel) {
	l.rows = rowJob{l, s, f}
	l.Pool.For(l.n, max(1, costly/max(1, l.n)), &l.rows)
}

// halve keeps 48 bits of a float64 in two floats, and whole gives them back.
func halve(to []float32, x float64) {
	to[0] = float32(x)
	if to[1] = float32(x - float64(to[0])); to[1] != to[1] {
		to[1] = 0 // of Inf less Inf
	}
}

func whole(x []float32) float64 { return float64(x[0]) + float64(x[1]) }

// logit is x_i·y_j less log q_j.
func (l *Lane) logit(s *step, i, j int) float64 {
	z := float64(vec.Dot(l.views[s.in[0]].row(i), l.views[s.in[1]].row(j)))
	if len(s.in) > 2 {
		z -= float64(l.views[s.in[2]].row(j)[0])
	}
	return z
}

// logSum is the logarithm of the sum of sample i's exponentials of logits.
func (l *Lane) logSum(s *step, i int) float64 {
	most, sum := math.Inf(-1), 0.0
	for j := range l.n {
		z := l.logit(s, i, j)
		if z > most || z != z { // sums so far are of numbers less the largest so far
			sum, most = sum*math.Exp(most-z), z
		}
		if most > math.Inf(-1) || most != most { // else it adds nothing
			sum += math.Exp(z - most)
		}
	}
	return most + math.Log(sum)
}

// softmaxTerm is a sample's cross entropy.
type softmaxTerm struct{}

func (softmaxTerm) do(l *Lane, s *step, lo, hi int) {
	for i := lo; i < hi; i++ {
		halve(l.views[s.aside].row(i), l.logSum(s, i)-l.logit(s, i, i))
	}
}

// softmaxSums is what a sample's probabilities are over.
type softmaxSums struct{}

func (softmaxSums) do(l *Lane, s *step, lo, hi int) {
	for i := lo; i < hi; i++ {
		halve(l.views[s.aside].row(i), l.logSum(s, i))
	}
}

// inBatchSoftmaxGrad is the gradient by both towers.
type inBatchSoftmaxGrad struct{}

func (inBatchSoftmaxGrad) aside() int { return 2 }

func (k inBatchSoftmaxGrad) run(l *Lane, s *step) error {
	l.terms(s, softmaxSums{})
	l.terms(s, k)
	return nil
}

func (inBatchSoftmaxGrad) do(l *Lane, s *step, lo, hi int) {
	x, y := l.views[s.in[0]], l.views[s.in[1]]
	weight := func(i, j int) float32 {
		w := math.Exp(l.logit(s, i, j) - whole(l.views[s.aside].row(i)))
		if i == j {
			w--
		}
		return float32(w / float64(l.n))
	}
	for i := lo; i < hi; i++ {
		out := l.views[s.out].row(i)
		clear(out)
		dx, dy := out[:x.width], out[x.width:]
		for j := range l.n {
			vec.Axpy(weight(i, j), y.row(j), dx)
			vec.Axpy(weight(j, i), x.row(j), dy)
		}
	}
}

// positive says whether sample i's label is above 0.5.
func (l *Lane) positive(s *step, i int) bool { return l.views[s.in[1]].row(i)[0] > 0.5 }

// ordered is the number of pairs of a positive and another sample.
func ordered(l *Lane, s *step) float64 {
	positives := 0
	for i := range l.n {
		if l.positive(s, i) {
			positives++
		}
	}
	return float64(positives) * float64(l.n-positives)
}

// aucTerm is the sum of a positive sample's pairs.
type aucTerm struct{}

func (aucTerm) do(l *Lane, s *step, lo, hi int) {
	z := l.views[s.in[0]]
	for i := lo; i < hi; i++ {
		sum := 0.0
		for j := 0; j < l.n && l.positive(s, i); j++ {
			if !l.positive(s, j) {
				d := float64(z.row(j)[0]) - float64(z.row(i)[0])
				sum += math.Max(d, 0) + math.Log1p(math.Exp(-math.Abs(d)))
			}
		}
		halve(l.views[s.aside].row(i), sum)
	}
}

// inBatchAUCGrad is the gradient by the logits.
type inBatchAUCGrad struct{}

func (k inBatchAUCGrad) run(l *Lane, s *step) error {
	l.terms(s, k)
	return nil
}

func (inBatchAUCGrad) do(l *Lane, s *step, lo, hi int) {
	z, count := l.views[s.in[0]], ordered(l, s)
	for i := lo; i < hi; i++ {
		sum, up := 0.0, l.positive(s, i)
		for j := range l.n {
			if l.positive(s, j) == up {
				continue
			}
			d := float64(z.row(i)[0]) - float64(z.row(j)[0])
			if up {
				sum -= 1 / (1 + math.Exp(d))
			} else {
				sum += 1 / (1 + math.Exp(-d))
			}
		}
		if sum != 0 || sum != sum {
			sum /= count
		}
		l.views[s.out].row(i)[0] = float32(sum)
	}
}
