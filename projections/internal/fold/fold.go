// Package fold holds what every projection does alike before it looks at an event:
// take the subject apart and decide whether there is anything to fold.
package fold

import (
	"errors"
	"slices"

	"github.com/monolith-go/monolith/events"
)

// Reasons under which a record is skipped and counted.
const (
	Subject   = "subject"   // the subject is not one of ours
	Malformed = "malformed" // events.ErrMalformed
	Invalid   = "invalid"   // events.ErrInvalid
	Unknown   = "unknown"   // events.ErrUnknown, an empty body, or a body this fold does not know
	Panicked  = "panicked"  // the fold itself failed, which is a defect
)

// Skipped counts records that a view could not fold, by reason.
type Skipped map[string]uint64

// Count returns s with one more record skipped for that reason.
func (s Skipped) Count(reason string) Skipped {
	if s == nil {
		s = Skipped{}
	}
	s[reason]++
	return s
}

// Failed is what a view does with a record whose fold panicked: at says where its state
// keeps its sequence and what it has skipped.
func Failed[S any](at func(*S) (seq *uint64, skipped *Skipped)) func(S, events.Recorded) S {
	return func(s S, r events.Recorded) S {
		seq, skipped := at(&s)
		*seq, *skipped = r.Seq, skipped.Count(Panicked)
		return s
	}
}

// Open takes the record's subject apart and says why its event cannot be folded; ""
// when it can. A foreign subject leaves Parts zero.
func Open(r events.Recorded) (events.Parts, string) {
	p, err := r.Subject.Parse()
	if err != nil {
		return events.Parts{}, Subject
	}
	return p, Reason(r.Event != nil, r.Err)
}

// Reason is why a record on a subject of ours cannot be folded, whose event is there or
// could not be decoded for err; "" when it can.
func Reason(there bool, err error) string {
	switch {
	case err == nil && there:
		return ""
	case errors.Is(err, events.ErrMalformed):
		return Malformed
	case errors.Is(err, events.ErrInvalid):
		return Invalid
	default:
		return Unknown
	}
}

// Enter is how a fold over some contexts begins with a record: it moves seq on and counts
// in skipped what cannot be folded. Without mine the record leaves no other trace: it was
// folded before, belongs to another context, or is a request. Without readable its
// sequence may be noted as the aggregate's last one, its event must not be looked at.
func Enter(seq *uint64, skipped *Skipped, r events.Recorded, contexts ...string) (p events.Parts, readable, mine bool) {
	if r.Seq <= *seq {
		return p, false, false // redelivered
	}
	*seq = r.Seq
	p, skip := Open(r)
	mine = slices.Contains(contexts, p.Context)
	if skip == Subject || skip != "" && mine {
		*skipped = skipped.Count(skip)
	}
	return p, skip == "", mine && !p.Request
}
