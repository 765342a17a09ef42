package rating

import "github.com/monolith-go/monolith/internal/model/impression"

// Headers of a record on the training topic. They let anybody join a rating with the
// prediction made for it, and a restarted source find what it has sent already; a
// record without them is as good for learning.
const (
	HeaderStream   = "stream" // who sent it: one name for all starts of one source
	HeaderIndex    = "index"  // of the rating in that source, from 0
	HeaderRequest  = impression.HeaderRequest
	HeaderPosition = impression.HeaderPosition
	HeaderTrace    = "traceparent" // W3C trace context
)
