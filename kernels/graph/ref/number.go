package ref

import "math"

// number is a float64, and how far a back end may be from it. Its methods propagate worst cases, with room for
// float64's own errors; round adds those of float32.
type number struct{ v, e float64 }

// wide is more than a rounding of float64's, relative to its result.
const wide = 0x1p-51

// of is float i of a value.
func (v Value) of(i int) number { return number{v.V[i], v.E[i]} }

// exact is a number that is known.
func exact(v float64) number { return number{v, 0} }

// largest is how large it may be.
func (a number) largest() float64 { return math.Abs(a.v) + a.e }

func (a number) add(b number) number {
	return number{a.v + b.v, a.e + b.e + wide*(math.Abs(a.v)+math.Abs(b.v))}
}

func (a number) neg() number { return number{-a.v, a.e} }

func (a number) sub(b number) number { return a.add(b.neg()) }

func (a number) mul(b number) number {
	return number{a.v * b.v, spread(a.v, b.v, a.e, b.e) + wide*math.Abs(a.v*b.v)}
}

// loose is a number that may be e further off.
func (a number) loose(e float64) number { return number{a.v, a.e + e} }

// round is what storing it as float32 adds.
func (a number) round() number { return number{a.v, rounded(a.v, a.e)} }

func (a number) both() (v, e float64) { return a.v, a.e }

// through is a function that rises, or falls, wherever it is defined.
func (a number) through(f func(x float64) float64) number {
	v := f(a.v)
	return number{v, math.Max(math.Abs(f(a.v+a.e)-v), math.Abs(f(a.v-a.e)-v)) + wide*math.Abs(v)}
}

// inverse is 1/a, without a bound where a may be 0.
func (a number) inverse() number {
	if math.Abs(a.v) <= a.e && a.e > 0 {
		return number{1 / a.v, math.Inf(1)}
	}
	if a.e == 0 {
		return number{1 / a.v, wide * math.Abs(1/a.v)}
	}
	return a.through(func(x float64) float64 { return 1 / x })
}
