package input

import (
	"fmt"
	"io"
	"strings"

	"github.com/monolith-go/monolith/internal/input/framing"
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

// FormatUsage is what a flag that names one says.
const FormatUsage = "how the records are written: json, example (tf.train.Example), monolith-example, example-batch or instance; these three may end in +framed, +lagrangex, +sort-id or +kafka-dump"

var messages = []string{JSON: "json", Example: "example", MonolithExample: "monolith-example", ExampleBatch: "example-batch", Instance: "instance"}

// perMessage is the distance between a message and the next framing of it.
const perMessage = 8

// withFraming is the format with another framing.
func (f Format) withFraming(k framing.Kind) Format { return f + Format(perMessage*k) }

func (f Format) message() Format       { return f % perMessage }
func (f Format) framing() framing.Kind { return framing.Kind(f / perMessage) }

func (f Format) String() string {
	if !f.Framed() {
		return messages[f]
	}
	return messages[f.message()] + "+" + f.framing().String()
}

// Text says whether messages of this format are text that may stand in a line.
func (f Format) Text() bool { return f == JSON }

// Framed says whether messages of this format stand one after the other with their sizes, so that
// a file of them needs nothing else to tell where each ends.
func (f Format) Framed() bool { return f.framing() != framing.None }

// ReadFrame appends the next message of a stream to buf, as [framing.Kind.Read] does.
func (f Format) ReadFrame(r io.Reader, limit int, buf []byte) ([]byte, error) {
	return f.framing().Read(r, limit, buf)
}

// Formats are the names of all.
func Formats() (names []string) {
	for m := range messages {
		for k := range framing.Kinds {
			if Format(m) >= MonolithExample || k == framing.None {
				names = append(names, Format(m).withFraming(k).String())
			}
		}
	}
	return names
}

// ParseFormat finds a format by its name: json, example, or one of Monolith's, monolith-example,
// example-batch and instance, to which +framed, +lagrangex, +sort-id or +kafka-dump may be added.
func ParseFormat(name string) (Format, error) {
	for m := range messages {
		for k := range framing.Kinds {
			if f := Format(m).withFraming(k); (f.message() >= MonolithExample || k == framing.None) && f.String() == name {
				return f, nil
			}
		}
	}
	return 0, fmt.Errorf("no records have the format %q: give one of %s", name, strings.Join(Formats(), ", "))
}
