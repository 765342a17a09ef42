package ref

import "math"

// row is a row of the last dimension of an operand.
func (a *at) row(operand, row int) []number {
	m := a.node.Shape.Last()
	x := make([]number, m)
	for i := range x {
		x[i] = a.in[operand].of(row*m + i)
	}
	return x
}

// eachRow computes every row of the result; f stores what is to be rounded.
func (a *at) eachRow(f func(row int, out []number)) {
	m := a.node.Shape.Last()
	for row := range len(a.out) / m {
		out := make([]number, m)
		f(row, out)
		for i, v := range out {
			a.out[row*m+i], a.e[row*m+i] = v.round().both()
		}
	}
}

// counting is how many places of a row count by the lengths at an operand, if it is there, and whether that is sure.
func (a *at) counting(operand, row int) (count int, sure bool) {
	m := a.node.Shape.Last()
	if operand >= len(a.in) {
		return m, true
	}
	length := a.in[operand].of(row / a.node.Shape.Rows())
	sure = true
	for k := range m {
		if float64(k) < length.v {
			count++
		}
		if length.e > 0 && math.Abs(float64(k)-length.v) <= length.e {
			sure = false
		}
	}
	return count, sure
}

// unsure takes the bounds away.
func unsure(out []number) {
	for i := range out {
		out[i].e = math.Inf(1)
	}
}

func (a *at) softmax() {
	a.eachRow(func(row int, out []number) {
		count, sure := a.counting(1, row)
		x, sum, most := a.row(0, row)[:count], exact(0), math.Inf(-1)
		for _, v := range x {
			most = math.Max(most, v.v)
		}
		for i, v := range x {
			out[i] = v.sub(exact(most)).through(math.Exp)
			sum = sum.add(out[i])
		}
		for i := range x {
			out[i] = out[i].mul(sum.inverse())
		}
		if !sure {
			unsure(out)
		}
	})
}

func (a *at) softmaxGrad() {
	a.eachRow(func(row int, out []number) {
		count, sure := a.counting(2, row)
		dy, y, sum := a.row(0, row), a.row(1, row), exact(0)
		for i := range count {
			sum = sum.add(dy[i].mul(y[i]))
		}
		for i := range count {
			out[i] = y[i].mul(dy[i].sub(sum))
		}
		if !sure {
			unsure(out)
		}
	})
}

// normal is a row with the mean 0 and about the variance 1, and what it was divided by, inverted.
func normal(x []number, epsilon float32) (y []number, scale number) {
	mean, variance, part := exact(0), exact(float64(epsilon)), exact(1/float64(len(x)))
	for _, v := range x {
		mean = mean.add(v.mul(part))
	}
	for i := range x {
		x[i] = x[i].sub(mean)
		variance = variance.add(x[i].mul(x[i]).mul(part))
	}
	variance.e = math.Min(variance.e, math.Max(0, variance.v-float64(epsilon)/2)+variance.e/2) // it stays above 0
	scale = variance.through(math.Sqrt).inverse()
	for i := range x {
		x[i] = x[i].mul(scale)
	}
	return x, scale
}

func (a *at) normalize(epsilon float32) {
	a.eachRow(func(row int, out []number) {
		y, _ := normal(a.row(0, row), epsilon)
		copy(out, y)
	})
}

func (a *at) normalizeGrad(epsilon float32) {
	a.eachRow(func(row int, out []number) {
		dy := a.row(0, row)
		y, scale := normal(a.row(1, row), epsilon)
		mean, along, part := exact(0), exact(0), exact(1/float64(len(dy)))
		for i, d := range dy {
			mean, along = mean.add(d.mul(part)), along.add(d.mul(y[i]).mul(part))
		}
		for i, d := range dy {
			out[i] = d.sub(mean).sub(y[i].mul(along)).mul(scale)
		}
	})
}

// length is a row's, inverted, and whether it is surely epsilon's, or surely not.
func length(x []number, epsilon float32) (inverted number, short, sure bool) {
	sum, least := exact(0), float64(epsilon)
	for _, v := range x {
		sum = sum.add(v.mul(v))
	}
	short, sure = sum.v < least, !(math.Abs(sum.v-least) <= sum.e)
	sum = sum.through(func(s float64) float64 { return math.Max(s, least) })
	return sum.through(math.Sqrt).inverse(), short, sure
}

func (a *at) l2Norm(epsilon float32) {
	a.eachRow(func(row int, out []number) {
		x := a.row(0, row)
		scale, _, _ := length(x, epsilon)
		for i, v := range x {
			out[i] = v.mul(scale)
		}
	})
}

func (a *at) l2NormGrad(epsilon float32) {
	a.eachRow(func(row int, out []number) {
		dy, x, along := a.row(0, row), a.row(1, row), exact(0)
		scale, short, sure := length(x, epsilon)
		for i, d := range dy {
			along = along.add(d.mul(x[i]).mul(scale))
		}
		for i, d := range dy {
			if !short {
				d = d.sub(x[i].mul(scale).mul(along))
			}
			out[i] = d.mul(scale)
		}
		if !sure {
			unsure(out)
		}
	})
}
