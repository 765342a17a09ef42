package portal

import (
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/projections/follow"
)

// ledger is what the portal remembers besides the catalogue: which requests still wait
// for their answer, so that a restart answers those and no other.
type ledger struct {
	Seq      uint64            `json:"seq"`
	Open     map[string]uint64 `json:"open"`     // id of a request -> its sequence
	Declared map[string]uint64 `json:"declared"` // model -> sequence of its newest Declared
}

var ledgerView = follow.View[ledger]{
	Name:    "portal-ledger",
	Version: 2,
	New:     func() ledger { return ledger{Open: map[string]uint64{}, Declared: map[string]uint64{}} },
	Fold:    foldLedger,
}

// foldLedger opens a request when it is stored and closes it when a fact names it as its
// cause. What was parked instead stays open here; the dead letters know it.
func foldLedger(s ledger, r events.Recorded) ledger {
	if r.Seq <= s.Seq {
		return s
	}
	s.Seq = r.Seq
	p, err := r.Subject.Parse()
	if err != nil || !owned(p.Context) {
		return s
	}
	if p.Request || misplaced(r) {
		s.Open[r.Header.ID] = r.Seq
		return s
	}
	delete(s.Open, r.Header.Causation)
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
