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
		{events.ErrMalformed, bus.Invalid},
		{events.ErrUnknown, bus.Invalid},
		{bus.ErrTooLarge, bus.Invalid},
		{bus.ErrNotFound, bus.NotFound},
		{bus.ErrConflict, bus.Conflict},
		{bus.ErrFull, bus.Unavailable},
		{context.DeadlineExceeded, bus.Unavailable},
		{bus.ErrUnavailable, bus.Unavailable},
		{errors.New("?"), bus.Internal},
	} {
		if got := bus.Refusal(tc.err); got.Code != tc.code {
			t.Errorf("Refusal(%v) = %v, want %s", tc.err, got, tc.code)
		}
	}
}
