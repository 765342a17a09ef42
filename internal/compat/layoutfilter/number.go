package layoutfilter

import (
	"errors"
	"math"
)

var (
	errZero     = errors.New("division by zero")
	errRange    = errors.New("a number leaves the range of 64 bits")
	errFraction = errors.New("a division makes a fraction of it: divide with //")
)

// number is a value of an expression: a whole number (True is 1, False is 0), or what
// the division / makes of two.
type number struct {
	i       int64
	f       float64
	float   bool
	missing error // of a name: why it has no value
}

func integer(i int64) number   { return number{i: i} }
func decimal(f float64) number { return number{f: f, float: true} }

func truth(b bool) number {
	if b {
		return integer(1)
	}
	return integer(0)
}

func (n number) truth() bool {
	if n.float {
		return n.f != 0
	}
	return n.i != 0
}

func (n number) asFloat() float64 {
	if n.float {
		return n.f
	}
	return float64(n.i)
}

// binary computes a op b as Python does: // and % round towards minus infinity, / always
// gives a fraction.
func binary(op string, a, b number) (number, error) {
	if op == "/" {
		if !b.truth() {
			return number{}, errZero
		}
		return finite(a.asFloat() / b.asFloat())
	}
	if a.float || b.float {
		return binaryFloat(op, a.asFloat(), b.asFloat())
	}
	return binaryInt(op, a.i, b.i)
}

func binaryInt(op string, a, b int64) (number, error) {
	switch op {
	case "+":
		if c := a + b; (c > a) == (b > 0) {
			return integer(c), nil
		}
		return number{}, errRange
	case "-":
		if c := a - b; (c < a) == (b > 0) {
			return integer(c), nil
		}
		return number{}, errRange
	case "*":
		c := a * b
		if a == 0 || (c/a == b && !(a == -1 && b == math.MinInt64)) {
			return integer(c), nil
		}
		return number{}, errRange
	}
	if b == 0 {
		return number{}, errZero
	}
	if a == math.MinInt64 && b == -1 {
		if op == "%" {
			return integer(0), nil
		}
		return number{}, errRange
	}
	q, r := a/b, a%b
	if r != 0 && (r < 0) != (b < 0) {
		q, r = q-1, r+b
	}
	if op == "%" {
		return integer(r), nil
	}
	return integer(q), nil
}

func binaryFloat(op string, a, b float64) (number, error) {
	switch op {
	case "+":
		return finite(a + b)
	case "-":
		return finite(a - b)
	case "*":
		return finite(a * b)
	}
	if b == 0 {
		return number{}, errZero
	}
	r := math.Mod(a, b)
	q := (a - r) / b
	if r != 0 {
		if (b < 0) != (r < 0) {
			r, q = r+b, q-1
		}
	} else {
		r = math.Copysign(0, b)
	}
	if op == "%" {
		return finite(r)
	}
	if q == 0 {
		return decimal(math.Copysign(0, a/b)), nil
	}
	whole := math.Floor(q)
	if q-whole > 0.5 {
		whole++
	}
	return finite(whole)
}

func finite(f float64) (number, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return number{}, errRange
	}
	return decimal(f), nil
}

func compare(op string, a, b number) bool {
	less, equal := a.i < b.i, a.i == b.i
	if a.float || b.float {
		less, equal = a.asFloat() < b.asFloat(), a.asFloat() == b.asFloat()
	}
	switch op {
	case "==":
		return equal
	case "!=":
		return !equal
	case "<":
		return less
	case "<=":
		return less || equal
	case ">":
		return !less && !equal
	}
	return !less // >=
}

// Integer computes a whole number as the configuration files of agents write it, such as
// 60 * 1000 * 1000.
func Integer(text string) (int64, error) {
	e, err := parse(text, nil)
	if err != nil {
		return 0, err
	}
	n, err := e(nil)
	if err == nil && n.float {
		err = errFraction
	}
	return n.i, err
}
