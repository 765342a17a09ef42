package modelspec

import (
	"errors"
	"fmt"
)

// ElementError is an error of one element of a spec.
type ElementError struct {
	Path string // as in "layers[2]"
	err  error
}

// Error is what is wrong, without the path.
func (e *ElementError) Error() string { return e.err.Error() }

// Unwrap is what is wrong.
func (e *ElementError) Unwrap() error { return e.err }

func at(path string, format string, args ...any) error {
	return &ElementError{path, fmt.Errorf(format, args...)}
}

// complaints are what is wrong, and where.
type complaints struct {
	path string // of what is being looked at, as in "layers[2]"
	all  []error
}

func (c *complaints) add(format string, args ...any) {
	c.all = append(c.all, at(c.path, format, args...))
}

// at says that the i-th element of a list is being looked at.
func (c *complaints) at(list string, i int) { c.path = fmt.Sprintf("%s[%d]", list, i) }

// take adds an error, which may know where it is.
func (c *complaints) take(err error) { c.all = append(c.all, err) }

func (c *complaints) err() error { return errors.Join(c.all...) }
