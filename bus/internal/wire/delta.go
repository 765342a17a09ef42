package wire

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

// DeltaRoot is the first token of every delta's subject.
const DeltaRoot = "msync"

// CheckDeltas refuses what Publish must not send, and draws the ids that are missing.
func CheckDeltas(drafts []bus.DeltaDraft) ([]bus.DeltaDraft, error) {
	if len(drafts) > MaxDrafts {
		return nil, fmt.Errorf("%w: %d deltas in one publish, at most %d", bus.ErrTooLarge, len(drafts), MaxDrafts)
	}
	out := make([]bus.DeltaDraft, len(drafts))
	ids := make(map[string]bool, len(drafts))
	for i, d := range drafts {
		if err := CheckSubject(d.Subject, false); err != nil {
			return nil, err
		}
		if !strings.HasPrefix(d.Subject, DeltaRoot+".") {
			return nil, fmt.Errorf("%w: %q is not a delta's subject; bus.DeltaSubject builds one", events.ErrInvalid, d.Subject)
		}
		if d.Subject != drafts[0].Subject {
			return nil, fmt.Errorf("%w: the deltas of one publish share a subject; %s and %s need two", events.ErrInvalid, drafts[0].Subject, d.Subject)
		}
		if d.ID == "" {
			d.ID = rand.Text()
		}
		if ids[d.ID] {
			return nil, fmt.Errorf("%w: id %q stands on two deltas of one publish", events.ErrInvalid, d.ID)
		}
		ids[d.ID] = true
		if err := checkHeader(events.Header{ID: d.ID, Traceparent: d.Traceparent}); err != nil {
			return nil, err
		}
		if n := len(d.Data) + 512 + len(d.ID) + len(d.Traceparent) + len(d.Subject); n > MaxMessage {
			return nil, fmt.Errorf("%w: a delta of %d bytes, at most %d are stored; cut it into chunks", bus.ErrTooLarge, len(d.Data), MaxMessage-1024)
		}
		if i > 0 {
			d.Expect = bus.Any
		}
		out[i] = d
	}
	return out, nil
}

// DeltaHeader is what stands beside a delta's bytes.
func DeltaHeader(d bus.DeltaDraft) map[string][]string {
	h := map[string][]string{MsgID: {d.ID}, ContentType: {Protobuf}}
	if d.Traceparent != "" {
		h[Traceparent] = []string{d.Traceparent}
	}
	return h
}

// Delta is a stored message as a follower sees it.
func Delta(d bus.StoredDelta, headers map[string][]string) bus.StoredDelta {
	d.Traceparent = first(headers, Traceparent)
	return d
}
