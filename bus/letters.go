package bus

import (
	"context"
	"time"
)

// Parked is a refused fact with the reason, kept until somebody re-drives or removes it,
// or it expires.
type Parked struct {
	Seq        uint64              `json:"seq"` // in the dead-letter stream; 0: a summary
	Time       time.Time           `json:"time"`
	Reason     string              `json:"reason"`
	By         string              `json:"by"`         // the owner that refused it
	Stream     string              `json:"stream"`     // MONOLITH, kafka:<topic>/<partition>, csv:<file>
	StreamSeq  uint64              `json:"stream_seq"` // sequence, offset or line there
	Subject    string              `json:"subject"`    // original subject or topic
	Header     map[string][]string `json:"header,omitempty"`
	Data       []byte              `json:"data"`
	Redriven   bool                `json:"redriven"`
	Unreadable bool                `json:"unreadable,omitempty"` // what stands there is no letter: Data are its bytes, Reason says so
	More       *More               `json:"more,omitempty"`       // of a summary, which stands for letters that had no room
}

// More is what a summary says of the letters it stands for. The rest of the summary's
// fields are the newest one's.
type More struct {
	Count uint64    `json:"count"`
	Since time.Time `json:"since"`
}

// DeadLetters keeps what was refused, and never stands in the way of what refuses it: a
// source whose letters take more than their share, or a stream that is full, has further
// ones counted in a summary.
type DeadLetters interface {
	// Park keeps p. It is idempotent by (Stream, StreamSeq), also once the letter was
	// removed, until that too has expired. Sequence 0 without an error: p had no room
	// and is counted in the summary of its owner and stream, once if the owner parks in
	// the stream's order.
	Park(ctx context.Context, p Parked) (uint64, error)
	// Knows says whether Park(p) would change nothing: a letter about it is held or was
	// removed, or the summary of its owner and stream has come to it or beyond.
	Knows(ctx context.Context, p Parked) (bool, error)
	// Each hands every letter to handle, by Seq, and then the summaries. Whatever else
	// stands in the stream comes as Unreadable. It holds a few of them at a time.
	Each(ctx context.Context, handle func(Parked) error) error
	List(ctx context.Context) ([]Parked, error) // what Each hands on, all of it in memory
	Show(ctx context.Context, seq uint64) (Parked, error)
	// Redrive publishes data (nil: the parked bytes) on the original subject, and
	// marks the letter as re-driven. It returns the new sequence.
	Redrive(ctx context.Context, seq uint64, data []byte) (uint64, error)
	// Remove forgets the letter's content and remembers that it was parked.
	Remove(ctx context.Context, seq uint64) error
	// Purge removes the letters and drops the summaries for which match is true, and
	// returns how many that were.
	Purge(ctx context.Context, match func(Parked) bool) (int, error)

	// Settled is the sequence of the log up to which the reaction named has answered,
	// parked or passed over everything; 0: nothing is known.
	Settled(ctx context.Context, bzid, reaction string) (uint64, error)
	// Settle remembers it. A sequence before the one that is remembered changes nothing.
	Settle(ctx context.Context, bzid, reaction string, seq uint64) error
}
