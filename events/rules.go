package events

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Bounds of what an event may hold. They are such that every view can fold, show and
// save it; see Payload for the tightest of them.
const (
	MaxName    = 255       // bytes of a name
	MaxText    = 16 << 10  // of any other text, a path or an address
	MaxReason  = 64 << 10  // of a sentence that says why
	MaxItems   = 65_536    // of a list or a map
	MaxPayload = 896 << 10 // of the data of one znode: Apache ZooKeeper takes less than 1 MiB with everything around it
)

// maxBroken and maxRule bound what is said of an event that breaks rules without end.
const (
	maxBroken = 20
	maxRule   = 1000 // bytes
)

// Rules collects what an event breaks, so that its author hears everything at once.
type Rules struct {
	broken []error
	more   int // broken rules of which no more is said
}

// Check notes a broken rule unless ok.
func (r *Rules) Check(ok bool, format string, args ...any) {
	if ok {
		return
	}
	if len(r.broken) == maxBroken {
		r.more++
		return
	}
	text := fmt.Sprintf(format, args...)
	if len(text) > maxRule {
		text = strings.ToValidUTF8(text[:maxRule], "") + "…"
	}
	r.broken = append(r.broken, errors.New(text))
}

// Named checks that a name is there and of bearable length.
func (r *Rules) Named(what, value string) {
	r.Check(value != "", "%s must be named", what)
	r.Text(what, value, MaxName)
}

// Text checks that a text is UTF-8 and of at most limit bytes.
func (r *Rules) Text(what, value string, limit int) {
	if len(value) <= limit && utf8.ValidString(value) {
		return // what the arguments of Check cost
	}
	r.Check(len(value) <= limit, "%s is %d bytes long, at most %d are allowed", what, len(value), limit)
	r.Check(utf8.ValidString(value), "%s is not UTF-8", what)
}

// Reason checks that something bad comes with its reason: "a refusal" needs one.
func (r *Rules) Reason(what, value string) {
	r.Check(value != "", "%s needs its reason", what)
	r.Text("the reason of "+what, value, MaxReason)
}

// Finite checks that a figure is a number.
func (r *Rules) Finite(what string, v float64) {
	r.Check(!math.IsNaN(v) && !math.IsInf(v, 0), "%s is %v, which is no figure", what, v)
}

// Payload checks the size of a znode that a view makes of the event, in bytes.
func (r *Rules) Payload(what string, size int) {
	r.Check(size <= MaxPayload, "%s would make a znode of %d bytes, at most %d are allowed", what, size, MaxPayload)
}

// Bounded checks every text, list and map of m against the bounds that hold where no
// tighter one is named: a text is UTF-8 of at most MaxText bytes, a reason of MaxReason, and
// nothing has more than MaxItems elements.
func (r *Rules) Bounded(m proto.Message) {
	if m != nil && m.ProtoReflect().IsValid() {
		r.message(m.ProtoReflect())
	}
}

func (r *Rules) message(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if r.items(f, v.Map().Len()) {
				v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
					r.value(f.MapKey(), k.Value())
					r.value(f.MapValue(), v)
					return true
				})
			}
		case f.IsList():
			if r.items(f, v.List().Len()) {
				for i := range v.List().Len() {
					r.value(f, v.List().Get(i))
				}
			}
		default:
			r.value(f, v)
		}
		return true
	})
}

func (r *Rules) items(f protoreflect.FieldDescriptor, n int) bool {
	r.Check(n <= MaxItems, "%s has %d elements, at most %d are allowed", f.Name(), n, MaxItems)
	return n <= MaxItems
}

// value checks one value of a field, or one element of it.
func (r *Rules) value(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.StringKind:
		limit := MaxText
		if f.Name() == "reason" {
			limit = MaxReason
		}
		r.Text(string(f.Name()), v.String(), limit)
	case protoreflect.MessageKind:
		r.message(v.Message())
	}
}

// JSONSize is how many bytes Python's json.dumps makes of the texts, each with what
// stands around it: everything but printable ASCII becomes \uXXXX, six bytes of one or two.
func JSONSize(texts ...string) (size int) {
	for _, text := range texts {
		size += len(`"", `)
		for _, c := range text {
			switch {
			case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == '\f':
				size += 2
			case c >= ' ' && c <= '~':
				size++
			case c > 0xffff:
				size += 12
			default:
				size += 6
			}
		}
	}
	return size
}

// Err is all broken rules as one ErrInvalid, or nil.
func (r *Rules) Err() error {
	if len(r.broken) == 0 {
		return nil
	}
	if r.more > 0 {
		return fmt.Errorf("%w: %w\nand %d rules more", ErrInvalid, errors.Join(r.broken...), r.more)
	}
	return fmt.Errorf("%w: %w", ErrInvalid, errors.Join(r.broken...))
}
