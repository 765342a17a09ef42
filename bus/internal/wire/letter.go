package wire

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
)

// LetterRoot is the first token of every dead letter's subject.
const LetterRoot = "mdlq"

// MaxReason bounds a letter's reason; the rest of a longer one says nothing new.
const MaxReason = 4 << 10

// Mark says, as a message of its own, that a letter was re-driven.
type Mark struct {
	Letter uint64 `json:"letter"`
	Seq    uint64 `json:"seq"` // in the log
}

// LetterSubject is mdlq.<bzid>.<stream>.<sequence>: one subject per refused message, so
// that a second letter about it conflicts with the first, however much later.
func LetterSubject(bzid string, p bus.Parked) string {
	if parts, err := events.Subject(p.Subject).Parse(); err == nil {
		bzid = parts.BZID
	}
	return fmt.Sprintf("%s.%s.%s.%d", LetterRoot, events.Escape(bzid), events.Escape(p.Stream), p.StreamSeq)
}

// MarkSubject is where a letter's mark stands.
func MarkSubject(letter string) string { return letter + ".redriven" }

// IsMark says whether the subject is a mark's, and whose.
func IsMark(subject string) (letter string, ok bool) { return strings.CutSuffix(subject, ".redriven") }

// EncodeLetter is a letter's bytes. Sequence, time and mark are the stream's to say.
func EncodeLetter(p bus.Parked) ([]byte, error) {
	if p.Stream == "" || p.Reason == "" || p.By == "" {
		return nil, fmt.Errorf("%w: a letter names its stream, its reason and who refused it", events.ErrInvalid)
	}
	p.Seq, p.Redriven = 0, false
	if len(p.Reason) > MaxReason {
		p.Reason = strings.ToValidUTF8(p.Reason[:MaxReason], "") + "…"
	}
	if n := len(p.Data); n > MaxEvent {
		p.Data = p.Data[:catalog.MaxBytes]
		p.Reason = fmt.Sprintf("%s (of %d bytes the first %d are kept here, all of them at %s %d)", p.Reason, n, len(p.Data), p.Stream, p.StreamSeq)
	}
	data, err := json.Marshal(p)
	if err == nil && len(data) > MaxMessage-1024 {
		p.Header = nil
		p.Reason += " (its headers are too large to be kept here)"
		data, err = json.Marshal(p)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", events.ErrInvalid, err)
	}
	if len(data) > MaxMessage-1024 {
		return nil, fmt.Errorf("%w: a letter of %d bytes", bus.ErrTooLarge, len(data))
	}
	return data, nil
}

// DecodeLetter reads them back.
func DecodeLetter(data []byte) (bus.Parked, error) {
	var p bus.Parked
	if err := json.Unmarshal(data, &p); err != nil {
		return bus.Parked{}, fmt.Errorf("dead letter: %w: %w", events.ErrMalformed, err)
	}
	return p, nil
}

// Redrive is what is published for a letter: its headers, except those that made the
// first attempt unique or conditional, under the id given.
func Redrive(p bus.Parked, id string, data []byte) (map[string][]string, []byte, error) {
	if !InLog(p.Subject) {
		return nil, nil, fmt.Errorf("%w: letter %d came from %s %s, which is no subject of the log; fix it at its source", events.ErrInvalid, p.Seq, p.Stream, p.Subject)
	}
	h := make(map[string][]string, len(p.Header)+2)
	for k, v := range p.Header {
		l := strings.ToLower(k)
		if strings.HasPrefix(l, "nats-") || l == ID {
			continue
		}
		h[k] = v
	}
	h[ID], h[MsgID] = []string{id}, []string{id}
	if data == nil {
		data = p.Data
	}
	return h, data, nil
}
