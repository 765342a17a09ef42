package portal

import (
	"context"
	"encoding/json"

	"github.com/monolith-go/monolith/bus"
)

// expectKey is the member of any command's body that guards it: the command is refused
// with CONFLICT unless the last event of its aggregate has this sequence or a lower one.
// So a caller that has looked at the aggregate decides on what it has seen, or not at all.
const expectKey = "expectSeq"

type expectation struct{}

// expecting takes the expected sequence out of the body, for appendSeq to keep.
func expecting(ctx context.Context, payload []byte) (context.Context, []byte, error) {
	var body map[string]json.RawMessage
	if json.Unmarshal(payload, &body) != nil || body[expectKey] == nil {
		return ctx, payload, nil // whatever is wrong with it, the command says
	}
	var seq uint64
	if err := json.Unmarshal(body[expectKey], &seq); err != nil {
		return ctx, payload, bus.Refuse(bus.CodeInvalid, "%s is %s: give the sequence up to which you have seen the aggregate", expectKey, body[expectKey])
	}
	delete(body, expectKey)
	rest, err := json.Marshal(body)
	return context.WithValue(ctx, expectation{}, seq), rest, err
}

// expected is the sequence that the command which ctx is of expects, bus.Any without one.
func expected(ctx context.Context) uint64 {
	if seq, ok := ctx.Value(expectation{}).(uint64); ok {
		return seq
	}
	return bus.Any
}

// changed refuses a command whose expected sequence has passed.
func changed(expect uint64) *bus.CommandError {
	return bus.Refuse(bus.CodeConflict, "it has changed behind sequence %d, up to which you have seen it: look again, then decide", expect)
}
