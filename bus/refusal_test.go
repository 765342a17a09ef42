package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

func TestRefusal(t *testing.T) {
	own := &bus.CommandError{Code: "MINE", Message: "m"}
	for _, tc := range []struct {
		err  error
		code string
	}{
		{fmt.Errorf("x: %w", own), "MINE"},
		{events.ErrMalformed, bus.CodeInvalid},
		{events.ErrUnknown, bus.CodeInvalid},
		{bus.ErrTooLarge, bus.CodeInvalid},
		{bus.ErrNotFound, bus.CodeNotFound},
		{bus.ErrConflict, bus.CodeConflict},
		{bus.ErrFull, bus.CodeUnavailable},
		{context.DeadlineExceeded, bus.CodeUnavailable},
		{bus.ErrUnavailable, bus.CodeUnavailable},
		{errors.New("?"), bus.CodeInternal},
	} {
		if got := bus.Refusal(tc.err); got.Code != tc.code {
			t.Errorf("Refusal(%v) = %v, want %s", tc.err, got, tc.code)
		}
	}
}
