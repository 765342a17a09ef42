package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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
func IsMark(subject string) (letter string, ok bool) {
	letter, ok = strings.CutSuffix(subject, ".redriven")
	if _, _, isLetter := ParseLetter(letter); !ok || !isLetter {
		return "", false
	}
	return letter, true
}

// ParseLetter takes a letter's subject apart; false: no letter stands there.
func ParseLetter(subject string) (stream string, seq uint64, ok bool) {
	t := strings.Split(subject, ".")
	if len(t) != 4 || t[0] != LetterRoot {
		return "", 0, false
	}
	stream, err := events.Unescape(t[2])
	if err != nil {
		return "", 0, false
	}
	seq, err = strconv.ParseUint(t[3], 10, 64)
	return stream, seq, err == nil
}

// Tombstone stands on a letter's subject once the letter was removed, so that parking
// it again still conflicts. It is smaller than any letter: a full stream lets it take
// the letter's place.
const Tombstone = `{"removed":true}`

// IsTombstone says whether the message tells of a letter that was removed.
func IsTombstone(data []byte) bool { return string(data) == Tombstone }

// EncodeLetter is a letter's bytes. Sequence, time and mark are the stream's to say.
func EncodeLetter(p bus.Parked) ([]byte, error) {
	if p.Stream == "" || p.Reason == "" || p.By == "" {
		return nil, fmt.Errorf("%w: a letter names its stream, its reason and who refused it", events.ErrInvalid)
	}
	p.Seq, p.Redriven, p.Unreadable, p.More = 0, false, false, nil
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

// DecodeLetter reads them back. What cannot be read is a letter too, an unreadable one,
// so that it is seen and can be removed.
func DecodeLetter(subject string, data []byte) bus.Parked {
	stream, seq, ok := ParseLetter(subject)
	why := fmt.Sprintf("%s is no subject of a letter: something else was published there", subject)
	if ok {
		var p bus.Parked
		err := json.Unmarshal(data, &p)
		if err == nil && (p.Stream == "" || p.Reason == "") {
			err = errors.New("it names no stream or no reason")
		}
		if err == nil {
			p.Unreadable, p.More = false, nil
			return p
		}
		why = fmt.Sprintf("no letter that this build can read: %v", err)
	}
	return bus.Parked{Reason: "unreadable: " + why, Stream: stream, StreamSeq: seq, Subject: subject, Data: data, Unreadable: true}
}

// Redrive is what is published for a letter: its headers, except those that made the
// first attempt unique or conditional, under the id given.
func Redrive(p bus.Parked, id string, data []byte) (map[string][]string, []byte, error) {
	if p.Unreadable {
		return nil, nil, fmt.Errorf("%w: letter %d is %s; fix it at its source, and remove it", events.ErrInvalid, p.Seq, p.Reason)
	}
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

// LetterBZID is the namespace in a letter's subject.
func LetterBZID(subject string) string {
	_, rest, _ := strings.Cut(subject, ".")
	token, _, _ := strings.Cut(rest, ".")
	bzid, err := events.Unescape(token)
	if err != nil {
		return token
	}
	return bzid
}
