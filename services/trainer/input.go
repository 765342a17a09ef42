package trainer

import (
	"cmp"
	"math"

	"github.com/monolith-go/monolith/internal/input"
)

// input says how the records of the configuration are read, which Validate has accepted.
func (c *Config) input() input.Options {
	o := input.Options{TimeField: c.TimeField, Lines: c.HostCall.Dir != ""}
	o.Format, _ = input.ParseFormat(cmp.Or(c.Format, input.JSON.String()))
	if len(c.LabelRange) == 2 {
		o.Min, o.Max = c.LabelRange[0], c.LabelRange[1]
	}
	return o
}

func validRange(r []float64) bool {
	return len(r) == 0 || len(r) == 2 && r[0] < r[1] && !math.IsInf(r[0], 0) && !math.IsInf(r[1], 0)
}
