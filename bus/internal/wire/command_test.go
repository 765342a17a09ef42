package wire

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

func TestCheckService(t *testing.T) {
	answer := func(context.Context, []byte) ([]byte, error) { return nil, nil }
	for _, tc := range []struct {
		name string
		s    bus.Service
		ok   bool
	}{
		{"whole", bus.Service{BZID: "b", Name: "portal", Version: "1.0.0", Endpoints: map[string]bus.Handler{"load": answer}}, true},
		{"no name", bus.Service{BZID: "b", Version: "1.0.0", Endpoints: map[string]bus.Handler{"load": answer}}, false},
		{"no version", bus.Service{BZID: "b", Name: "portal", Endpoints: map[string]bus.Handler{"load": answer}}, false},
		{"no endpoint", bus.Service{BZID: "b", Name: "portal", Version: "1.0.0"}, false},
		{"no handler", bus.Service{BZID: "b", Name: "portal", Version: "1.0.0", Endpoints: map[string]bus.Handler{"load": answer, "unload": nil}}, false},
		{"no subject", bus.Service{BZID: "b", Name: "portal", Version: "1.0.0", Endpoints: map[string]bus.Handler{"lo ad": answer}}, false},
	} {
		if err := CheckService(tc.s); (err == nil) != tc.ok || err != nil && !errors.Is(err, events.ErrInvalid) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// A handler answers, refuses or panics, and its caller hears each of them.
func TestAnswer(t *testing.T) {
	for _, tc := range []struct {
		name string
		h    bus.Handler
		want string
		code string
	}{
		{"an answer", func(_ context.Context, p []byte) ([]byte, error) { return append([]byte("re: "), p...), nil }, "re: q", ""},
		{"a refusal", func(context.Context, []byte) ([]byte, error) {
			return []byte("lost"), fmt.Errorf("x: %w", bus.ErrConflict)
		}, "", bus.CodeConflict},
		{"a panic", func(context.Context, []byte) ([]byte, error) { panic("oh") }, "", bus.CodeInternal},
	} {
		reply, refusal := Answer(t.Context(), tc.h, []byte("q"))
		if string(reply) != tc.want || (refusal != nil) != (tc.code != "") || refusal != nil && refusal.Code != tc.code {
			t.Errorf("%s: %q, %v", tc.name, reply, refusal)
		}
	}
}

func TestParseRefusal(t *testing.T) {
	own := bus.CommandError{Code: "500", Message: "standby"}
	for body, want := range map[string]bus.CommandError{
		`{"error":{"code":"INVALID","message":"no"}}`: {Code: "INVALID", Message: "no"},
		`{"error":{"code":"INVALID"}}`:                {Code: "INVALID"},
		`{"error":{"code":"","message":"no"}}`:        own,
		`{"error":null}`:                              own,
		`{`:                                           own,
	} {
		if got := ParseRefusal([]byte(body), own.Code, own.Message); *got != want {
			t.Errorf("%s is read as %+v", body, *got)
		}
	}
}
