// Package events says what a fact is: its subject, its envelope and the errors that
// decide what becomes of it. One package per context below it holds the messages;
// catalog knows them all.
package events

import (
	"errors"
	"time"

	"google.golang.org/protobuf/proto"
)

// Sentinels: a caller does something different for each.
var (
	ErrMalformed = errors.New("malformed event") // not decodable: its owner parks it
	ErrInvalid   = errors.New("invalid event")   // decodable, breaks a rule: its owner parks it
	ErrUnknown   = errors.New("unknown event")   // a type this build does not know: views skip it, its owner parks it
)

// Header is the envelope, CloudEvents binary mode in NATS headers. A bare publish
// without headers is complete: ID is then "<stream>-<sequence>" and the rest follows
// from the subject and the body.
type Header struct {
	ID          string // ce-id and Nats-Msg-Id
	Type        string // ce-type: the body's one key, e.g. loadRequested
	Source      string // ce-source: the role that wrote it
	Correlation string // correlation-id: the request that all of this answers
	Causation   string // causation-id: ID of the event that led to this one
	Traceparent string // W3C trace context
	Asked       Asked  // who asked for it
}

// Recorded is an event as the log holds it.
type Recorded struct {
	Seq     uint64
	Subject Subject
	Time    time.Time // the log's, and so the fact's
	Header  Header
	Event   proto.Message // the context's *Event; nil iff Err != nil
	Err     error         // why it could not be decoded: ErrMalformed, ErrInvalid or ErrUnknown
	Data    []byte        // the bytes as stored; shared, not to be changed
	Binary  bool          // Data is binary protobuf rather than protojson

	// Where a record is folded part by part, Event is one part: its place, from 0, and
	// whether more of the same sequence follow.
	Part int
	More bool
}
