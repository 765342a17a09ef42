package bus

import (
	"context"
	"time"
)

// Trimmer is a Log that can be made to forget its beginning, once an archive holds it.
// Sequences stay what they are; expected sequences that name a forgotten event go on holding.
type Trimmer interface {
	// Span is the oldest sequence still held and the last one; first is last+1 when
	// nothing is held.
	Span(ctx context.Context) (first, last uint64, err error)
	// Trim forgets every event before the sequence. The newest event of the log stays: by it
	// a snapshot proves that it is of this log. It cannot be undone.
	Trim(ctx context.Context, before uint64) error
	// KeepIn remembers beside the log where its archive is, for those who read it later.
	KeepIn(ctx context.Context, archive string) error
	// Cut is what is remembered of the newest Trim.
	Cut(ctx context.Context) (Cut, error)
}

// Cut is the end of what a log was made to forget.
type Cut struct {
	Seq     uint64    // of the last forgotten event; 0: none was, or nobody remembered it
	Time    time.Time // of the same
	ID      string    // of the same
	Archive string    // where KeepIn said that it is; "": nowhere that is known
}
