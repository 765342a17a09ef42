package events

import (
	"errors"
	"fmt"
)

// Rules collects what an event breaks, so that its author hears everything at once.
type Rules struct{ broken []error }

// Check notes a broken rule unless ok.
func (r *Rules) Check(ok bool, format string, args ...any) {
	if !ok {
		r.broken = append(r.broken, fmt.Errorf(format, args...))
	}
}

// Named checks that a name is there and of bearable length.
func (r *Rules) Named(what, value string) {
	r.Check(value != "", "%s must be named", what)
	r.Check(len(value) <= 255, "%s is %d bytes long, at most 255 are allowed", what, len(value))
}

// Err is all broken rules as one ErrInvalid, or nil.
func (r *Rules) Err() error {
	if len(r.broken) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalid, errors.Join(r.broken...))
}
