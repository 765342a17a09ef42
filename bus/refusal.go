package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/events"
)

// Codes of a CommandError.
const (
	CodeInvalid     = "INVALID"
	CodeNotFound    = "NOT_FOUND"
	CodeForbidden   = "FORBIDDEN" // to whoever asks
	CodeConflict    = "CONFLICT"
	CodeUnavailable = "UNAVAILABLE" // ask again
	CodeInternal    = "INTERNAL"
)

// CommandError is a handler's refusal: it reaches the caller with its code.
type CommandError struct {
	Code    string // CodeInvalid to CodeInternal
	Message string // a sentence that names the fix
}

func (e *CommandError) Error() string { return e.Code + ": " + e.Message }

// Refuse makes a refusal.
func Refuse(code, format string, args ...any) *CommandError {
	return &CommandError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Refusal is err as the caller of a command sees it: a refusal as it is, of anything else
// the code that says what to do, and where that helps a sentence.
func Refusal(err error) *CommandError {
	var c *CommandError
	switch {
	case errors.As(err, &c):
		full := *c // micro sends no refusal that lacks either
		if full.Code == "" {
			full.Code = CodeInternal
		}
		if full.Message == "" {
			full.Message = "refused without a reason"
		}
		return &full
	case errors.Is(err, events.ErrInvalid), errors.Is(err, events.ErrMalformed), errors.Is(err, events.ErrUnknown), errors.Is(err, ErrTooLarge):
		return Refuse(CodeInvalid, "%v", err)
	case errors.Is(err, ErrNotFound):
		return Refuse(CodeNotFound, "%v", err)
	case errors.Is(err, ErrConflict):
		return Refuse(CodeConflict, "%v: ask again", err)
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Refuse(CodeUnavailable, "%v: the outcome is unknown; ask again, a repeat does no harm", err)
	case errors.Is(err, ErrFull):
		return Refuse(CodeUnavailable, "%v: make room for the log, then ask again", err)
	}
	return Refuse(CodeInternal, "%v", err)
}
