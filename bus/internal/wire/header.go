package wire

import (
	"fmt"
	"strings"
	"time"

	"github.com/monolith-go/monolith/events"
)

// Names of the envelope's headers: CloudEvents binary mode besides what NATS reads.
const (
	MsgID       = "Nats-Msg-Id"
	ID          = "ce-id"
	Type        = "ce-type"
	Source      = "ce-source"
	Time        = "ce-time"
	Subject     = "ce-subject"
	SpecVersion = "ce-specversion"
	Correlation = "correlation-id"
	Causation   = "causation-id"
	Traceparent = "traceparent"
	ContentType = "content-type"
	AskedBy     = "asked-by"
	AskedKey    = "asked-key"
	AskedFrom   = "asked-from"
	AskedProof  = "asked-proof"
	Protobuf    = "application/protobuf"
	JSON        = "application/json"
)

// Encode writes the envelope. at is the writer's clock; the fact's time is the log's.
func Encode(h events.Header, subject string, at time.Time) map[string][]string {
	m := map[string][]string{
		MsgID:       {h.ID},
		ID:          {h.ID},
		Time:        {at.UTC().Format(time.RFC3339Nano)},
		Subject:     {subject},
		SpecVersion: {"1.0"},
		ContentType: {JSON},
	}
	for k, v := range map[string]string{
		Type: h.Type, Source: h.Source, Correlation: h.Correlation, Causation: h.Causation, Traceparent: h.Traceparent,
	} {
		if v != "" {
			m[k] = []string{v}
		}
	}
	EncodeAsked(h.Asked, m)
	return m
}

// EncodeAsked writes who asks into headers, in place of what they say of that.
func EncodeAsked(a events.Asked, m map[string][]string) {
	for k, v := range map[string]string{AskedBy: a.By, AskedKey: a.Key, AskedFrom: a.From, AskedProof: a.Proof} {
		if delete(m, k); v != "" {
			m[k] = []string{v}
		}
	}
}

// DecodeAsked reads who asks, as it says.
func DecodeAsked(m map[string][]string) events.Asked {
	return events.Asked{By: first(m, AskedBy), Key: first(m, AskedKey), From: first(m, AskedFrom), Proof: first(m, AskedProof)}.Bounded()
}

// HeaderSize bounds the bytes that the envelope takes, with room for what the bus adds.
func HeaderSize(h events.Header, subject string) int {
	n := 512 + 2*len(h.ID) + 2*len(subject)
	for _, v := range []string{h.Type, h.Source, h.Correlation, h.Causation, h.Traceparent, h.Asked.By, h.Asked.Key, h.Asked.From, h.Asked.Proof} {
		n += len(v)
	}
	return n
}

// Decode reads the envelope of the message at seq of a stream. Without headers, the id
// is "<stream>-<sequence>".
func Decode(m map[string][]string, stream string, seq uint64) (h events.Header, binary bool) {
	h = events.Header{
		ID:          first(m, ID),
		Type:        first(m, Type),
		Source:      first(m, Source),
		Correlation: first(m, Correlation),
		Causation:   first(m, Causation),
		Traceparent: first(m, Traceparent),
		Asked:       DecodeAsked(m),
	}
	if h.ID == "" {
		h.ID = first(m, MsgID)
	}
	if h.ID == "" {
		h.ID = fmt.Sprintf("%s-%d", stream, seq)
	}
	mime, _, _ := strings.Cut(first(m, ContentType), ";")
	return h, strings.EqualFold(strings.TrimSpace(mime), Protobuf)
}

// first finds a header: in its own spelling, else in any, since people type it by hand.
func first(m map[string][]string, key string) string {
	if v := m[key]; len(v) > 0 {
		return v[0]
	}
	for k, v := range m {
		if len(v) > 0 && strings.EqualFold(k, key) {
			return v[0]
		}
	}
	return ""
}

// checkHeader refuses what would break out of its header line.
func checkHeader(h events.Header) error {
	if h.Asked != h.Asked.Bounded() {
		return fmt.Errorf("%w: who asked, %q, is too long or cannot be printed", events.ErrInvalid, h.Asked)
	}
	for _, v := range []string{h.ID, h.Source, h.Correlation, h.Causation, h.Traceparent} {
		if strings.ContainsAny(v, "\r\n\x00") {
			return fmt.Errorf("%w: header value %q has a line break", events.ErrInvalid, v)
		}
	}
	return nil
}
