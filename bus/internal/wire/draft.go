// Package wire is what every bus shares: a draft made ready to be stored, the envelope
// as headers and back, and the one way a refusal is told.
package wire

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
)

// Limits that every bus keeps, so that what passes in tests passes in production.
const (
	MaxMessage = 1 << 20                    // bytes of any message, headers included
	MaxEvent   = catalog.MaxBytes + 128<<10 // bytes of an event, headers included: it fits into a letter
	MaxDrafts  = 1000                       // messages of one Append or Publish
	Window     = 20 * time.Minute           // for which a stream remembers ids
)

// Streams of a bus, by name.
const (
	LogStream    = "MONOLITH"
	SyncStream   = "MONOLITH_SYNC"
	LetterStream = "MONOLITH_DLQ"
)

// ErrRepeated says that a call names an id the log holds already beside one it does
// not: the call was made before with other drafts. Nothing of it was stored now.
var ErrRepeated = fmt.Errorf("%w: %w; draw new ids for a new decision", events.ErrInvalid, bus.ErrRepeated)

// Ready is a draft as it is stored.
type Ready struct {
	Subject string
	Header  events.Header
	Data    []byte
	Expect  uint64 // bus.Any also for later drafts of a subject
	Binary  bool
}

// Envelope is the headers it is stored with. at is the writer's clock.
func (r Ready) Envelope(at time.Time) map[string][]string {
	m := Encode(r.Header, r.Subject, at)
	if r.Binary {
		m[ContentType] = []string{Protobuf}
	}
	return m
}

// Prepare validates and encodes the drafts of one Append. Only the first draft of a
// subject keeps its expectation.
func Prepare(drafts []bus.Draft) ([]Ready, error) {
	if len(drafts) > MaxDrafts {
		return nil, fmt.Errorf("%w: %d events in one append, at most %d are stored together", bus.ErrTooLarge, len(drafts), MaxDrafts)
	}
	out := make([]Ready, len(drafts))
	seen := make(map[string]bool, len(drafts))
	ids := make(map[string]bool, len(drafts))
	for i, d := range drafts {
		r, err := prepare(d)
		if err != nil {
			return nil, fmt.Errorf("append to %s: %w", d.Subject, err)
		}
		if ids[r.Header.ID] {
			return nil, fmt.Errorf("%w: id %q stands on two events of one append; each event needs its own", events.ErrInvalid, r.Header.ID)
		}
		if seen[r.Subject] {
			r.Expect = bus.Any
		}
		seen[r.Subject], ids[r.Header.ID] = true, true
		out[i] = r
	}
	return out, nil
}

func prepare(d bus.Draft) (Ready, error) {
	if d.Event == nil {
		return Ready{}, fmt.Errorf("%w: the draft has no event", events.ErrInvalid)
	}
	encode := catalog.Encode
	if d.Binary {
		encode = catalog.EncodeBinary
	}
	data, err := encode(d.Subject, d.Event)
	if err != nil {
		return Ready{}, invalid(err)
	}
	h := d.Header
	h.Type = catalog.Type(d.Event)
	if h.ID == "" {
		h.ID = rand.Text()
	}
	if err := checkHeader(h); err != nil {
		return Ready{}, err
	}
	if n := len(data) + HeaderSize(h, string(d.Subject)); len(data) > catalog.MaxBytes || n > MaxEvent {
		return Ready{}, fmt.Errorf("%w: %s has %d bytes, at most %d are stored", bus.ErrTooLarge, h.Type, len(data), catalog.MaxBytes)
	}
	return Ready{Subject: string(d.Subject), Header: h, Data: data, Expect: d.Expect, Binary: d.Binary}, nil
}

// Attribute has what is stored say who asked for it, unless it does.
func Attribute(ready []Ready, a events.Asked) {
	for i := range ready {
		if h := &ready[i].Header; h.Asked == (events.Asked{}) {
			h.Asked = a
		}
	}
}

// invalid makes err an events.ErrInvalid unless it is one already.
func invalid(err error) error {
	if errors.Is(err, events.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", events.ErrInvalid, err)
}

// Record is a stored message as a follower sees it. known, if not nil, returns the event
// of which the caller knows that it has been encoded as just these bytes, or nil.
func Record(seq uint64, subject string, at time.Time, headers map[string][]string, data []byte, known func(events.Recorded) proto.Message) events.Recorded {
	r := events.Recorded{Seq: seq, Subject: events.Subject(subject), Time: at, Data: data}
	r.Header, r.Binary = Decode(headers, LogStream, seq)
	var m proto.Message
	if known != nil {
		m = known(r)
	}
	if m == nil {
		if m, r.Err = catalog.Decode(r.Subject, r.Binary, data); r.Err != nil {
			return r
		}
	}
	r.Event = m
	r.Header.Type = catalog.Type(m)
	return r
}
