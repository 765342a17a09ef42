package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

type errorBody struct {
	Error *errorText `json:"error"`
}

type errorText struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// RefusalBody is {"error":{"code","message"}}.
func RefusalBody(c *bus.CommandError) []byte {
	b, err := json.Marshal(errorBody{&errorText{c.Code, c.Message}})
	if err != nil {
		panic(fmt.Sprintf("two strings do not marshal: %v", err))
	}
	return b
}

// ParseRefusal reads a refusal's body; code and message stand in for what it lacks.
func ParseRefusal(body []byte, code, message string) *bus.CommandError {
	var b errorBody
	if err := json.Unmarshal(body, &b); err == nil && b.Error != nil && b.Error.Code != "" {
		return &bus.CommandError{Code: b.Error.Code, Message: b.Error.Message}
	}
	return &bus.CommandError{Code: code, Message: message}
}

// Answer runs a handler; its panic is its own refusal, not the end of the process.
func Answer(ctx context.Context, h bus.Handler, payload []byte) (reply []byte, refusal *bus.CommandError) {
	defer func() {
		if p := recover(); p != nil {
			reply, refusal = nil, &bus.CommandError{Code: bus.CodeInternal, Message: fmt.Sprintf("the handler panicked: %v; this is a defect of the service", p)}
		}
	}()
	reply, err := h(ctx, payload)
	if err != nil {
		return nil, bus.Refusal(err)
	}
	return reply, nil
}

// Command is monolith.<bzid>.cmd.<command>, or mpulse.<bzid>.cmd.<command> for a command
// that is part of the pulse.
func Command(bzid, command string) string {
	root := events.Root
	if strings.HasPrefix(command, bus.Pulse) {
		root = bus.PulseRoot
	}
	return root + "." + events.Escape(bzid) + ".cmd." + command
}

// CommandFilter is where the commands of a service stand in every namespace; a service that
// ends with .> is all that begin so.
func CommandFilter(service string) string {
	root := events.Root
	if strings.HasPrefix(service, bus.Pulse) {
		root = bus.PulseRoot
	}
	return root + ".*.cmd." + strings.TrimSuffix(service, ".>") + ".>"
}

// CheckService refuses what has no place on the bus before anything is registered.
func CheckService(s bus.Service) error {
	if s.Name == "" || s.Version == "" || len(s.Endpoints) == 0 {
		return fmt.Errorf("%w: a service needs a name, a version and an endpoint", events.ErrInvalid)
	}
	for name, h := range s.Endpoints {
		if h == nil {
			return fmt.Errorf("%w: endpoint %s of service %s has no handler", events.ErrInvalid, name, s.Name)
		}
		if err := CheckSubject(Command(s.BZID, s.Name+"."+name), false); err != nil {
			return err
		}
	}
	return nil
}
