// Package bus is the log as a contract: append under an expected sequence, follow in
// order, park what is refused, answer commands, hold leases, publish deltas. jetstream
// is the real thing, mem the same contract in memory; bustest is the suite both pass.
package bus

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
)

var (
	ErrConflict    = errors.New("conflict")        // expectation not met: catch up, decide again
	ErrUnavailable = errors.New("bus unavailable") // no answer: the same call with the same ids may be repeated
	ErrTooLarge    = errors.New("message too large")
	ErrFull        = errors.New("stream is full")                                            // limit or disk: nothing was stored
	ErrRepeated    = errors.New("an id of this call is stored already, but not all of them") // an events.ErrInvalid of the call, of none of its drafts: it was made before with others
	ErrNotFound    = errors.New("not found")
	ErrTrimmed     = errors.New("sequence is no longer in the stream") // deltas: load the newest export; events: read the archive
)

// Retryable decides for everybody whether the same call may simply be made again.
func Retryable(err error) bool { return errors.Is(err, ErrUnavailable) }

// Any is the expectation of an unguarded append.
const Any = ^uint64(0)

// Draft is an event that is not stored yet.
type Draft struct {
	Subject events.Subject
	Event   proto.Message // a context's *Event; validated before anything is sent
	Header  events.Header // ID is drawn when empty; Type is filled in from Event
	Expect  uint64        // last sequence of Subject, 0: none yet, Any: unguarded
	Binary  bool          // stored as binary protobuf: smaller and quicker, for what nobody reads by eye; followers may be handed Event itself, so it must not change any more
}

// Log is the control plane's stream.
type Log interface {
	// Append stores all drafts or none, in order, and returns their sequences once
	// they are on disk. Only the first draft of a subject carries the expectation of
	// that subject; later ones of the same call follow it. Resending the same IDs
	// after ErrUnavailable stores nothing twice and returns the first sequences.
	// Errors: ErrConflict, ErrUnavailable, ErrTooLarge, ErrFull, ErrRepeated, events.ErrInvalid.
	Append(ctx context.Context, drafts ...Draft) ([]uint64, error)

	// Follow hands every event from sequence `from` (1 is the first) to handle, in
	// order, once each, reconnecting as often as needed, until ctx ends, handle
	// fails, or, with until > 0, the event at sequence until has been handled. What
	// cannot be decoded arrives too, with Err set. A beginning that was trimmed is
	// ErrTrimmed.
	Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error

	Last(ctx context.Context) (uint64, error)                           // 0: empty
	LastOf(ctx context.Context, subject events.Subject) (uint64, error) // 0: none
	Get(ctx context.Context, seq uint64) (events.Recorded, error)       // ErrNotFound
	SeqAt(ctx context.Context, t time.Time) (uint64, error)             // last sequence stored at or before t, 0: none
}

// StoredDelta is one message of the sync stream.
type StoredDelta struct {
	Seq         uint64
	Subject     string
	Time        time.Time
	Traceparent string
	Data        []byte // binary events/delta.Delta
}

// DeltaDraft is a delta that is not published yet. Expect guards the subject, as in
// Draft: that is how a fenced writer learns of its successor.
type DeltaDraft struct {
	Subject     string
	ID          string
	Expect      uint64
	Traceparent string
	Data        []byte
}

// Deltas is the sync stream: it discards its oldest when full.
type Deltas interface {
	// Publish stores the drafts in order and returns the last one's sequence once it
	// is on disk. Drafts of one call share a subject; only the first has an expected sequence.
	Publish(ctx context.Context, drafts ...DeltaDraft) (uint64, error)
	// Follow is Log.Follow over the subjects named (NATS wildcards). A `from` behind
	// the oldest message kept is ErrTrimmed when messages were really lost.
	Follow(ctx context.Context, from, until uint64, subjects []string, handle func(StoredDelta) error) error
	// First is the oldest sequence kept, behind Last when none is.
	First(ctx context.Context) (uint64, error)
	Last(ctx context.Context) (uint64, error)
	LastOf(ctx context.Context, subject string) (uint64, error)
	Get(ctx context.Context, seq uint64) (StoredDelta, error)
}

// DeltaSubject is msync.<bzid>.<job>.<shard>, with .dense behind it for variables.
func DeltaSubject(bzid, job, shard string) string {
	return "msync." + events.Escape(bzid) + "." + events.Escape(job) + "." + shard
}

// Handler answers one command. A reply of an error is JSON {"error":{"code","message"}}
// besides the service error headers, because the nats CLI exits 0 on those.
type Handler func(ctx context.Context, payload []byte) ([]byte, error)

// Service is one role's commands, on monolith.<bzid>.cmd.<Name>.<endpoint>; a Name that
// begins with Pulse is on mpulse.<bzid>.cmd.<Name>.<endpoint>.
type Service struct {
	BZID        string
	Name        string // a subject path: portal, or ps.<job>.<index>
	Version     string // semantic
	Description string
	Endpoints   map[string]Handler
}

// Commands hosts and calls NATS micro services. A handler's ctx says who asked ([AskedOf]).
type Commands interface {
	// Serve registers the service and returns a function that takes it down.
	Serve(ctx context.Context, s Service) (stop func(), err error)
	// Call asks <service name>.<endpoint> of the namespace. A refusal is a *CommandError, nobody
	// there or no answer in time ErrUnavailable.
	Call(ctx context.Context, bzid, command string, payload []byte) ([]byte, error)
	// Asked is who asked for what an event of the log says. It is an ErrInvalid where askers are
	// known by their keys and a request is signed by none of them; facts are their owners' word.
	Asked(r events.Recorded) (events.Asked, error)
}

// PulseRoot is the first token of what machines tell each other many times a second:
// signals, and the commands whose names begin with Pulse. It stands apart from
// events.Root, so that whoever subscribes to monolith.> reads a story.
const (
	PulseRoot = "mpulse"
	Pulse     = "pulse."
)

// PulseSubject is mpulse.<bzid>.<kind>.<who>; who may be a NATS wildcard.
func PulseSubject(bzid, kind, who string) string {
	if who != "*" && who != ">" {
		who = events.Escape(who)
	}
	return PulseRoot + "." + events.Escape(bzid) + "." + kind + "." + who
}

// Signals are messages nobody keeps: heartbeats and progress. At most once.
type Signals interface {
	Signal(ctx context.Context, subject string, payload []byte) error
	// Listen calls handle, one message at a time, until stopped.
	Listen(ctx context.Context, subject string, handle func(subject string, payload []byte)) (stop func(), err error)
}

// Lease is held until Lost is closed. Epoch rises with every holder, and fences.
type Lease struct {
	Name  string
	Epoch uint64
	Lost  <-chan struct{}
}

// Leases are exclusive and time-limited; renewals are not facts.
type Leases interface {
	// Acquire waits for the lease and renews it until release is called or ctx ends.
	Acquire(ctx context.Context, name, holder string, ttl time.Duration) (l Lease, release func(), err error)
	// TryAcquire is Acquire without the wait: ErrConflict when somebody holds it.
	TryAcquire(ctx context.Context, name, holder string, ttl time.Duration) (l Lease, release func(), err error)
}

// Bus is one connection to everything above.
type Bus interface {
	Log() Log
	Deltas() Deltas
	DeadLetters() DeadLetters
	Commands() Commands
	Signals() Signals
	Leases() Leases
	// Done is closed when the bus answers no more: after Close, or when its connection
	// ended in a way that it cannot mend. Its host then ends what works on it.
	Done() <-chan struct{}
	// Err is why Done is closed, nil before it is and after Close.
	Err() error
	Close() error
}
