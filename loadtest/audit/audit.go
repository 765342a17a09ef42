// Package audit computes the figures of a run from what the run left behind, the log,
// the deltas, Kafka and the checkpoints, and from nothing else. The demo uses it for
// its freshness; monolith verify uses all of it to find out whether a report is true.
package audit

import (
	"errors"
	"fmt"
	"math"
)

// Check is one claim and what the logs say about it.
type Check struct {
	Name   string `json:"name"`
	Want   string `json:"want"` // what the report, or a rule, says
	Got    string `json:"got"`  // what the logs say
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // a sentence: what is wrong, or what was left out
}

// String is the check in one line.
func (c Check) String() string {
	mark := "ok  "
	if !c.OK {
		mark = "FAIL"
	}
	s := fmt.Sprintf("%s %s: %s", mark, c.Name, c.Got)
	if !c.OK {
		s += fmt.Sprintf(", want %s", c.Want)
	}
	if c.Detail != "" {
		s += ". " + c.Detail
	}
	return s
}

// Passed tells whether every check did.
func Passed(checks []Check) bool {
	for _, c := range checks {
		if !c.OK {
			return false
		}
	}
	return true
}

// equal checks two values of one kind; detail speaks when they differ.
func equal[T comparable](name string, want, got T, detail string) Check {
	c := Check{Name: name, Want: fmt.Sprint(want), Got: fmt.Sprint(got), OK: want == got}
	if !c.OK {
		c.Detail = detail
	}
	return c
}

// near checks two figures that may differ by tolerance; unknown equals unknown.
func near(name string, want, got, tolerance float64, detail string) Check {
	c := Check{Name: name, Want: figure(want), Got: figure(got)}
	c.OK = math.IsNaN(want) && math.IsNaN(got) || math.Abs(want-got) <= tolerance
	if !c.OK {
		c.Detail = detail
	}
	return c
}

func figure(v float64) string {
	if math.IsNaN(v) {
		return "unknown"
	}
	return fmt.Sprintf("%.6g", v)
}

// Failed joins the checks that did not hold; nil: all did.
func Failed(checks []Check) error {
	var errs []error
	for _, c := range checks {
		if !c.OK {
			errs = append(errs, errors.New(c.String()))
		}
	}
	return errors.Join(errs...)
}
