package audit

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/monolith-go/monolith/bus"
)

// Rejected is what was refused.
type Rejected struct {
	Last     uint64           // sequence of the last dead letter counted
	ByReason map[string]int64 // first reason of its kind -> letters
	CSV      int64            // rows of files
	Kafka    int64            // records of the training topic
}

// maxKinds bounds the reasons that are told apart.
const maxKinds = 40

// otherReasons counts what does not fit into maxKinds.
const otherReasons = "other reasons: monolith dlq ls shows each"

// variable is what differs between two letters refused by one rule: numbers and what
// stands in quotes.
var variable = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[-+]?[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?`)

// CountRejected counts the dead letters up to sequence until (0: all), by reason. Reasons
// that differ in numbers and quoted text alone are one kind, named by the first of them.
// Letters that were driven again count like the others: they were refused once.
func CountRejected(ctx context.Context, dlq bus.DeadLetters, topic string, until uint64) (Rejected, error) {
	out := Rejected{ByReason: map[string]int64{}}
	name := map[string]string{} // kind -> its first reason
	err := dlq.Each(ctx, func(l bus.Parked) error {
		n := int64(1)
		if l.More != nil { // a summary of letters that had no room
			n = int64(l.More.Count)
		}
		if until != 0 && l.Seq > until {
			return nil
		}
		out.Last = max(out.Last, l.Seq)
		kind := variable.ReplaceAllString(l.Reason, "#")
		first, known := name[kind]
		switch {
		case known:
		case len(name) < maxKinds:
			first = l.Reason
			name[kind] = first
		default:
			first = otherReasons
		}
		out.ByReason[first] += n
		switch {
		case strings.HasPrefix(l.Stream, "csv:"):
			out.CSV += n
		case strings.HasPrefix(l.Stream, "kafka:"+topic+"/"):
			out.Kafka += n
		}
		return nil
	})
	if err != nil {
		return Rejected{}, fmt.Errorf("read the dead letters: %w", err)
	}
	return out, nil
}
