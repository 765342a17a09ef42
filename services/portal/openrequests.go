package portal

import (
	"slices"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/react"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/model"
)

// requestsReaction names the reaction that answers requests. It is in the ids of all
// answers.
const requestsReaction = "portal.requests"

// maxOpen bounds the requests whose answers are awaited: one that is forgotten here is
// answered all the same, only another portal that is as far behind may answer it again.
const maxOpen = 4096

// openRequests is what the portal remembers besides the catalogue: how far requests are
// answered, so that a portal that is late answers none again.
type openRequests struct {
	Seq      uint64            `json:"seq"`
	Answered uint64            `json:"answered"` // sequence of the last request that has its answer: all before have theirs, or a letter
	Open     []openRequest     `json:"open"`     // behind Answered, in order; those that are parked stay until a later one is answered
	Declared map[string]uint64 `json:"declared"` // model -> sequence of its newest Declared
}

// openRequest is known by the id that the first fact of its answer will have.
type openRequest struct {
	Seq     uint64 `json:"seq"`
	Answer  string `json:"answer"`
	Earlier string `json:"earlier"` // by the first releases
}

var openRequestsView = follow.View[openRequests]{
	Name:    "portal-ledger",
	Version: 3,
	New:     func() openRequests { return openRequests{Open: []openRequest{}, Declared: map[string]uint64{}} },
	Fold:    foldOpenRequests,
}

// foldOpenRequests opens a request when it is stored. Requests are answered in the order of the
// log, so the answer of one closes those before it as well.
func foldOpenRequests(s openRequests, r events.Recorded) openRequests {
	if r.Seq <= s.Seq {
		return s
	}
	s.Seq = r.Seq
	p, err := r.Subject.Parse()
	if err != nil || !owned(p.Context) || misplaced(r) && !p.Request {
		return s
	}
	if p.Request {
		if r.Err == nil {
			s.Open = append(s.Open, openRequest{r.Seq, react.ID(r, requestsReaction, 0), react.EarlierID(r.Header.ID, requestsReaction, 0)})
			s.Open = s.Open[max(0, len(s.Open)-maxOpen):]
		}
		return s
	}
	for i, o := range slices.Backward(s.Open) {
		if r.Header.ID == o.Answer || r.Header.ID == o.Earlier {
			s.Answered = o.Seq
			s.Open = slices.Clone(s.Open[i+1:])
			break
		}
	}
	if e, ok := r.Event.(*model.Event); ok && e.GetDeclared() != nil {
		s.Declared[p.Aggregate] = r.Seq
	}
	return s
}

// owned says whether the portal writes the facts of a context.
func owned(context string) bool { return context == "model" || context == "layout" }

// misplaced is whatever stands on the portal's own subjects and is no fact: it owes it a
// letter.
func misplaced(r events.Recorded) bool {
	return r.Err != nil || catalog.Type(r.Event) == "" || catalog.IsRequest(r.Event)
}
