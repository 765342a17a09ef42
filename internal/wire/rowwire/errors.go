package rowwire

import (
	"context"
	"errors"
	"fmt"
)

// Code says what a caller can do about a refusal.
type Code uint8

const (
	Invalid         Code = 1 // the request breaks a rule: sending it again is no use
	NotFound        Code = 2 // no such model, job, shard, table or variable here
	Fenced          Code = 3 // a newer lease epoch has written: stop
	Gap             Code = 4 // the range starts above the recorded offset: rewind to Next
	Overlap         Code = 5 // the range straddles the recorded offset: cut it at Next
	WrongGeneration Code = 6 // deterministic mode: the timeline was rolled back; Next is the shard's generation
	Unavailable     Code = 7 // no answer: the same request may be sent again
)

func (c Code) String() string {
	switch c {
	case Invalid:
		return "INVALID"
	case NotFound:
		return "NOT_FOUND"
	case Fenced:
		return "FENCED"
	case Gap:
		return "GAP"
	case Overlap:
		return "OVERLAP"
	case WrongGeneration:
		return "WRONG_GENERATION"
	case Unavailable:
		return "UNAVAILABLE"
	}
	return fmt.Sprintf("Code(%d)", uint8(c))
}

// Error is a refusal, or a connection that gave no answer.
type Error struct {
	Code    Code
	Message string
	Next    int64 // see the codes

	cause error // this side only
}

func (e *Error) Error() string { return e.Code.String() + ": " + e.Message }

// Unwrap gives the cause on the side where it happened, such as context.DeadlineExceeded.
func (e *Error) Unwrap() error { return e.cause }

// Errorf makes an Error. A cause can be wrapped with %w; it does not travel.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), cause: errors.Unwrap(err)}
}

// CodeOf returns the code of err: 0 for nil, Unavailable for what is no Error.
func CodeOf(err error) Code {
	if err == nil {
		return 0
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Unavailable
}

// asError makes an Error of whatever a handler returned.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Errorf(Unavailable, "the request was given up before it was answered; send it again: %w", err)
	}
	return Errorf(Unavailable, "%w", err)
}
