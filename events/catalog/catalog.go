// Package catalog is the one table of contexts: which message stands on which subject,
// how its bytes are read and written, and what makes it valid.
package catalog

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/server"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/events/znode"
)

// Contexts are the subject tokens behind the bzid, in the order in which the stream
// lists them.
var Contexts = []string{
	model.Context, publish.Context, container.Context, replica.Context, server.Context,
	transfer.Context, training.Context, shard.Context, layout.Context, znode.Context,
}

// MaxBytes bounds one event's body: what is larger is refused before it is sent.
const MaxBytes = 512 << 10

// Validator is what every context's Event does: it reports the rules that it breaks
// as events.ErrInvalid. The aggregate is the subject's.
type Validator interface {
	proto.Message
	Validate(aggregate string) error
}

// New returns the context's empty Event.
func New(context string) (proto.Message, bool) {
	switch context {
	case model.Context:
		return &model.Event{}, true
	case publish.Context:
		return &publish.Event{}, true
	case container.Context:
		return &container.Event{}, true
	case replica.Context:
		return &replica.Event{}, true
	case server.Context:
		return &server.Event{}, true
	case transfer.Context:
		return &transfer.Event{}, true
	case training.Context:
		return &training.Event{}, true
	case shard.Context:
		return &shard.Event{}, true
	case layout.Context:
		return &layout.Event{}, true
	case znode.Context:
		return &znode.Event{}, true
	}
	return nil, false
}

// Decode reads the event stored on subject. Errors: events.ErrMalformed (bytes or
// subject), events.ErrUnknown (a context or fact this build does not know),
// events.ErrInvalid (a rule is broken). A field unknown inside a known fact is passed
// over, so that older followers live with newer writers; in a request it is a typing
// error and refused.
func Decode(subject events.Subject, binary bool, data []byte) (proto.Message, error) {
	parts, err := subject.Parse()
	if err != nil {
		return nil, err
	}
	m, ok := New(parts.Context)
	if !ok {
		return nil, fmt.Errorf("%w: context %q is none of %s", events.ErrUnknown, parts.Context, strings.Join(Contexts, ", "))
	}
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", events.ErrInvalid, len(data), MaxBytes)
	}
	if binary {
		err = proto.Unmarshal(data, m)
	} else {
		err = decodeJSON(m, parts.Request, data)
	}
	if err != nil {
		if errors.Is(err, events.ErrUnknown) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", events.ErrMalformed, err)
	}
	if Type(m) == "" {
		if binary && len(data) > 0 {
			return nil, fmt.Errorf("%w: no known fact of context %s in a binary body", events.ErrUnknown, parts.Context)
		}
		return nil, fmt.Errorf("%w: the body names no fact; it needs one of %s", events.ErrMalformed, strings.Join(types(m), ", "))
	}
	if parts.Request != IsRequest(m) {
		if parts.Request {
			return nil, fmt.Errorf("%w: %s is a fact, only its owner appends it and never on .request", events.ErrInvalid, Type(m))
		}
		return nil, fmt.Errorf("%w: %s is a request, publish it on %s", events.ErrInvalid, Type(m), subject.Request())
	}
	return m, m.(Validator).Validate(parts.Aggregate)
}

func decodeJSON(m proto.Message, strict bool, data []byte) error {
	var keys map[string]json.RawMessage
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&keys); err != nil {
		return fmt.Errorf("not a JSON object: %w", err)
	}
	if dec.More() {
		return errors.New("more than one JSON object")
	}
	if len(keys) != 1 {
		return fmt.Errorf("the body has %d keys, exactly one names the fact", len(keys))
	}
	for key := range keys {
		fields := m.ProtoReflect().Descriptor().Fields()
		if fields.ByJSONName(key) == nil && fields.ByTextName(key) == nil {
			return fmt.Errorf("%w: %q is none of %s", events.ErrUnknown, key, strings.Join(types(m), ", "))
		}
	}
	return protojson.UnmarshalOptions{DiscardUnknown: !strict}.Unmarshal(data, m)
}

// Encode validates m as the event on subject and writes it as compact protojson, the
// same bytes every time.
func Encode(subject events.Subject, m proto.Message) ([]byte, error) {
	if err := check(subject, m); err != nil {
		return nil, err
	}
	return events.Marshal(m)
}

// EncodeBinary is Encode as binary protobuf.
func EncodeBinary(subject events.Subject, m proto.Message) ([]byte, error) {
	if err := check(subject, m); err != nil {
		return nil, err
	}
	if a, ok := m.(encoding.BinaryAppender); ok { // the same bytes, sooner
		return a.AppendBinary(nil)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

func check(subject events.Subject, m proto.Message) error {
	parts, err := subject.Parse()
	if err != nil {
		return err
	}
	want, ok := New(parts.Context)
	if !ok || want.ProtoReflect().Descriptor() != m.ProtoReflect().Descriptor() {
		return fmt.Errorf("%w: %s does not belong on %s", events.ErrInvalid, m.ProtoReflect().Descriptor().FullName(), subject)
	}
	if Type(m) == "" {
		return fmt.Errorf("%w: an event without a body on %s", events.ErrInvalid, subject)
	}
	if parts.Request != IsRequest(m) {
		return fmt.Errorf("%w: %s on %s: requests and only requests go to .request", events.ErrInvalid, Type(m), subject)
	}
	return m.(Validator).Validate(parts.Aggregate)
}

// Type is the body's one key, loadRequested for example; "" when it has none.
func Type(m proto.Message) string {
	r := m.ProtoReflect()
	if f := r.WhichOneof(r.Descriptor().Oneofs().ByName("body")); f != nil {
		return f.JSONName()
	}
	return ""
}

// IsRequest says whether anyone may publish m, on .request.
func IsRequest(m proto.Message) bool { return strings.HasSuffix(Type(m), "Requested") }

func types(m proto.Message) []string {
	var names []string
	fields := m.ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range fields.Len() {
		names = append(names, fields.Get(i).JSONName())
	}
	return names
}
