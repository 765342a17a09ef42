package bus

import "context"

// Trimmer is a Log that can be made to forget its beginning, once an archive holds it.
// Sequences stay what they are; guards that name a forgotten event go on working.
type Trimmer interface {
	// Span is the oldest sequence still held and the last one; first is last+1 when
	// nothing is held.
	Span(ctx context.Context) (first, last uint64, err error)
	// Trim forgets every event before the sequence. It cannot be undone.
	Trim(ctx context.Context, before uint64) error
}
