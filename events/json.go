package events

import (
	"bytes"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Marshal writes m as compact protojson with the same bytes every time, unlike
// protojson itself, which varies its white space on purpose.
func Marshal(m proto.Message) ([]byte, error) {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// JSON carries a message inside a struct that encoding/json writes: views and
// snapshots keep facts whole, oneofs included. The zero value is null.
type JSON[T proto.Message] struct{ V T }

func (j JSON[T]) MarshalJSON() ([]byte, error) {
	if any(j.V) == nil || !j.V.ProtoReflect().IsValid() {
		return []byte("null"), nil
	}
	return Marshal(j.V)
}

func (j *JSON[T]) UnmarshalJSON(data []byte) error {
	var zero T
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		j.V = zero
		return nil
	}
	m := zero.ProtoReflect().New().Interface()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, m); err != nil {
		return err
	}
	j.V = m.(T)
	return nil
}
