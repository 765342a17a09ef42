package ref

import "math"

// logits are x_i·y_j less log q_j, for all j.
func (a *at) logits(i int) []number {
	d, out := a.shapes[0].Size(), make([]number, a.n)
	for j := range out {
		s := chain{}
		for k := range d {
			s.add(a.in[0].V[i*d+k], a.in[1].V[j*d+k], a.in[0].E[i*d+k], a.in[1].E[j*d+k])
		}
		if out[j] = (number{s.sum, s.bound()}); len(a.in) > 2 {
			out[j] = out[j].sub(a.in[2].of(j))
		}
	}
	return out
}

// logSum is the logarithm of the sum of exponentials, which none of z may change by more than it changes itself.
func logSum(z []number) number {
	most, sum, e := math.Inf(-1), 0.0, 0.0
	for _, v := range z {
		most, e = math.Max(most, v.v), math.Max(e, v.e)
	}
	for _, v := range z {
		sum += math.Exp(v.v - most)
	}
	return number{most + math.Log(sum), e + 0x1p-45*(1+math.Abs(most))}
}

// average is a sum over the batch over count, or 0.
func (a *at) average(sum number, count float64) {
	if count > 0 {
		v := sum.mul(exact(1 / count))
		a.out[0], a.e[0] = v.loose(0x1p-40 * math.Abs(v.v)).round().both()
	}
}

func (a *at) inBatchSoftmax() {
	sum := exact(0)
	for i := range a.n {
		z := a.logits(i)
		sum = sum.add(logSum(z).sub(z[i]))
	}
	a.average(sum, float64(a.n))
}

func (a *at) inBatchSoftmaxGrad() {
	d, n := a.shapes[0].Size(), a.n
	dx, dy := make([]chain, n*d), make([]chain, n*d)
	for i := range n {
		z := a.logits(i)
		all := logSum(z)
		for j, v := range z {
			w := v.sub(all).loose(0x1p-46 * math.Abs(all.v)).through(math.Exp)
			if i == j {
				w = w.sub(exact(1))
			}
			w = w.mul(exact(1 / float64(n))).round()
			for k := range d {
				dx[i*d+k].add(w.v, a.in[1].V[j*d+k], w.e, a.in[1].E[j*d+k])
				dy[j*d+k].add(w.v, a.in[0].V[i*d+k], w.e, a.in[0].E[i*d+k])
			}
		}
	}
	a.each(func(at int) (float64, float64) {
		s := &dx[at/(2*d)*d+at%d]
		if at%(2*d) >= d {
			s = &dy[at/(2*d)*d+at%d]
		}
		return s.sum, s.bound()
	})
}

// ordered calls f for all two samples of different labels; sure says whether labels are.
func (a *at) ordered(f func(p, q int)) (count float64, sure bool) {
	sure = true
	for p := range a.n {
		sure = sure && !(math.Abs(a.in[1].V[p]-0.5) <= a.in[1].E[p] && a.in[1].E[p] > 0)
		for q := range a.n {
			if a.in[1].V[p] > 0.5 && !(a.in[1].V[q] > 0.5) {
				f(p, q)
				count++
			}
		}
	}
	return count, sure
}

func softplus(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func (a *at) inBatchAUC() {
	sum := exact(0)
	count, sure := a.ordered(func(p, q int) {
		sum = sum.add(a.in[0].of(q).sub(a.in[0].of(p)).through(softplus))
	})
	a.average(sum, count)
	if !sure {
		a.e[0] = math.Inf(1)
	}
}

func (a *at) inBatchAUCGrad() {
	sums := make([]number, a.n)
	count, sure := a.ordered(func(p, q int) {
		s := a.in[0].of(q).sub(a.in[0].of(p)).through(sigmoid)
		sums[p], sums[q] = sums[p].sub(s), sums[q].add(s)
	})
	if count > 0 {
		a.each(func(i int) (float64, float64) { return sums[i].mul(exact(1 / count)).round().both() })
	}
	if !sure {
		for i := range a.e {
			a.e[i] = math.Inf(1)
		}
	}
}
