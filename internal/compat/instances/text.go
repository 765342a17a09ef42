package instances

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// Form is a way to write a message down.
type Form string

// The forms. A dump is a tree of lines: a field's name or an element's number, a colon, and its
// value, or what lies below it further to the right.
const (
	PB    Form = "pb"
	PBTxt Form = "pbtxt"
	JSON  Form = "json"
	Dump  Form = "dump"
)

// Parse reads a message.
func (f Form) Parse(data []byte, m proto.Message) error {
	var err error
	switch f {
	case PB:
		err = proto.Unmarshal(data, m)
	case PBTxt:
		err = prototext.Unmarshal(data, m)
	case JSON:
		err = protojson.Unmarshal(data, m)
	case Dump:
		if data, err = parseDump(data); err == nil {
			err = protojson.Unmarshal(data, m)
		}
	default:
		return fmt.Errorf("messages have no form %q: give pb, pbtxt, json or dump", f)
	}
	if err != nil {
		return fmt.Errorf("it is no %s as %s: %w", m.ProtoReflect().Descriptor().Name(), f, err)
	}
	return nil
}

// gap is the second space that prototext puts behind some colons, so that nobody relies on its bytes.
var gap = regexp.MustCompile(`(?m)^(\s*[\w\[\]/.]+:)  `)

// Text is m in protobuf's text form, the same bytes for the same message.
func Text(m proto.Message) ([]byte, error) {
	b, err := prototext.MarshalOptions{Multiline: true, Indent: "  ", EmitUnknown: true}.Marshal(m)
	return gap.ReplaceAll(b, []byte("$1 ")), err
}

// Format writes a message down, text with a newline at its end.
func (f Form) Format(m proto.Message) ([]byte, error) {
	switch f {
	case PB:
		return proto.MarshalOptions{Deterministic: true}.Marshal(m)
	case PBTxt:
		return Text(m)
	case JSON, Dump:
		raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		if err != nil {
			return nil, err
		}
		if f == Dump {
			return formatDump(raw)
		}
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return nil, err
		}
		return append(b.Bytes(), '\n'), nil
	}
	return nil, fmt.Errorf("messages have no form %q: give pb, pbtxt, json or dump", f)
}
