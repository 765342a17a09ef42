package input

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Format is how a record is written: a message, and what stands around it.
type Format uint8

// The formats, of which those below Framed have a record for each message, and Monolith's have
// variants of framing; see [ParseFormat].
const (
	JSON            Format = iota // one object, whose members are the fields
	Example                       // a tf.train.Example in the protobuf wire format
	MonolithExample               // Monolith's Example: named features, labels, a LineId
	ExampleBatch                  // Monolith's: samples by column
	Instance                      // Monolith's oldest: ids of version 1 without names
)

// framings are what Monolith's streams have before each message: its size of 8 bytes last. The
// messages of a record stand one after the other.
var framings = []string{"", "framed", "lagrangex", "sort-id", "kafka-dump"}

const (
	unframed  = iota
	framed    // nothing else
	lagrangeX // 8 bytes
	sortID    // the length of an id, 8 bytes, and the id
	kafkaDump // 8 bytes, and 8 more where they are 0; a sort id, of that length where they are not; 8 bytes
)

// FormatUsage is what a flag that names one says.
const FormatUsage = "how the records are written: json, example (tf.train.Example), monolith-example, example-batch or instance; these three may end in +framed, +lagrangex, +sort-id or +kafka-dump"

var messages = []string{JSON: "json", Example: "example", MonolithExample: "monolith-example", ExampleBatch: "example-batch", Instance: "instance"}

// perMessage is the distance between a message and the next framing of it.
const perMessage = 8

// withFraming is the format with a framing of framings.
func (f Format) withFraming(framing int) Format { return f + Format(perMessage*framing) }

func (f Format) message() Format { return f % perMessage }
func (f Format) framing() int    { return int(f / perMessage) }

func (f Format) String() string {
	if f.framing() == unframed {
		return messages[f]
	}
	return messages[f.message()] + "+" + framings[f.framing()]
}

// Formats are the names of all.
func Formats() (names []string) {
	for m := range messages {
		for framing := range framings {
			if Format(m) >= MonolithExample || framing == unframed {
				names = append(names, Format(m).withFraming(framing).String())
			}
		}
	}
	return names
}

// ParseFormat finds a format by its name: json, example, or one of Monolith's, monolith-example,
// example-batch and instance, to which +framed, +lagrangex, +sort-id or +kafka-dump may be added.
func ParseFormat(name string) (Format, error) {
	for m := range messages {
		for framing := range framings {
			if f := Format(m).withFraming(framing); (f.message() >= MonolithExample || framing == unframed) && f.String() == name {
				return f, nil
			}
		}
	}
	return 0, fmt.Errorf("no records have the format %q: give one of %s", name, strings.Join(Formats(), ", "))
}

// What a stream has at a place that was never written.
const poisoned = 0xfefefefe

var errCut = errors.New("it is cut short")

// unframe takes the first message off a record that frames several.
func unframe(framing int, b []byte) (message, rest []byte, err error) {
	take := func(n uint64) (head []byte) {
		if err != nil || n > uint64(len(b)) {
			err = errCut
			return nil
		}
		head, b = b[:n], b[n:]
		return head
	}
	number := func() uint64 {
		if head := take(8); err == nil {
			return binary.LittleEndian.Uint64(head)
		}
		return 0
	}
	switch framing {
	case lagrangeX:
		take(8)
	case sortID:
		take(number())
	case kafkaDump:
		length := number()
		if length == 0 && err == nil {
			take(8)
			length = number()
		}
		take(length)
		take(8)
	}
	size := number()
	if err == nil && size == poisoned {
		return nil, nil, fmt.Errorf("its size is %#x, which marks what was never written", size)
	}
	message = take(size)
	return message, b, err
}
