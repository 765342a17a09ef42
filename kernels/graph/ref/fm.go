package ref

import "math"

// fm is the term of each sample: sums over fields in float32, then over dimensions, in any order.
func (a *at) fm() {
	fields, dim := a.shapes[0].Dims[0], a.shapes[0].Dims[1]
	a.each(func(n int) (float64, float64) {
		y, size := exact(0), 0.0
		for i := range dim {
			sum, abs := a.fields(n, i)
			y, size = y.add(sum.mul(sum)), size+abs*abs
			for f := range fields {
				v := a.in[0].of((n*fields+f)*dim + i)
				y = y.sub(v.mul(v))
			}
		}
		y = y.mul(exact(0.5))
		return y.loose(float64(fields*dim+8)*0x1p-22*size + float64(fields*dim)*tiny).both()
	})
}

// fields is the sum over the fields of sample n's dimension i, and that of absolute values.
func (a *at) fields(n, i int) (sum number, abs float64) {
	fields, dim := a.shapes[0].Dims[0], a.shapes[0].Dims[1]
	for f := range fields {
		v := a.in[0].of((n*fields+f)*dim + i)
		sum, abs = sum.add(v), abs+v.largest()
	}
	return sum.loose(float64(fields) * u * abs), abs
}

// fmGrad is dy · (sum − e), onto the third operand if there is one, with or without a rounding between.
func (a *at) fmGrad() {
	size, dim := a.shapes[0].Size(), a.shapes[0].Dims[1]
	a.each(func(at int) (float64, float64) {
		sum, _ := a.fields(at/size, at%dim)
		d := sum.sub(a.in[0].of(at)).round().mul(a.in[1].of(at / size))
		d = d.loose(math.Abs(d.v)*u + tiny)
		if len(a.in) > 2 {
			d = d.add(a.in[2].of(at))
		}
		return d.round().both()
	})
}
