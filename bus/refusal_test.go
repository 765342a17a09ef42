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

// What a refusal lacks is filled in, and what it has stays.
func TestRefusalsAreWhole(t *testing.T) {
	for _, tc := range []struct{ in, want bus.CommandError }{
		{bus.CommandError{Code: "MINE", Message: "no room"}, bus.CommandError{Code: "MINE", Message: "no room"}},
		{bus.CommandError{Message: "no room"}, bus.CommandError{Code: bus.CodeInternal, Message: "no room"}},
		{bus.CommandError{Code: "MINE"}, bus.CommandError{Code: "MINE", Message: "refused without a reason"}},
	} {
		if got := bus.Refusal(&tc.in); *got != tc.want {
			t.Errorf("Refusal(%+v) = %+v, want %+v", tc.in, *got, tc.want)
		}
	}
}

// A wildcard stays one; any other name is one token, whatever it holds.
func TestPulseSubject(t *testing.T) {
	for who, want := range map[string]string{
		"*": "mpulse.b%2Ez.lease.*", ">": "mpulse.b%2Ez.lease.>", "c1": "mpulse.b%2Ez.lease.c1", "a.*": "mpulse.b%2Ez.lease.a%2E%2A",
	} {
		if got := bus.PulseSubject("b.z", "lease", who); got != want {
			t.Errorf("PulseSubject of %q = %s, want %s", who, got, want)
		}
	}
}
