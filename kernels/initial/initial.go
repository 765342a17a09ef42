// Package initial draws first values of rows: the initializers that kernels/table does
// not bring itself.
package initial

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/vec"
)

// Initializer is kernels/table's: a function of the key alone.
type Initializer interface {
	Init(values []float32, key uint64)
}

// Constant starts every weight at the same value; Constant(1) is the original's "ones".
type Constant float32

// NewConstant refuses a value that is not finite.
func NewConstant(value float32) (Constant, error) {
	if value-value != 0 {
		return 0, fmt.Errorf("initial: the constant is %g: give a finite number", value)
	}
	return Constant(value), nil
}

// Init sets the value.
func (c Constant) Init(values []float32, _ uint64) { vec.Fill(float32(c), values) }
