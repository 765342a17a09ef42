// Package plan is the view of who serves what: the publisher's newest word on each model.
package plan

import (
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/projections/internal/fold"
)

// Name and Version identify the view's snapshots; Version rises with every change of
// State or of what Fold makes of a log.
const (
	Name    = "plan"
	Version = 3
)

// State is every plan after the event at Seq, by model name.
type State struct {
	Seq     uint64          `json:"seq"`
	Plans   map[string]Plan `json:"plans"`
	Leader  Leader          `json:"leader,omitzero"`
	Skipped fold.Skipped    `json:"skipped,omitempty"`
}

// Leader is the publisher that decides, by its newest word on the leader's subject.
type Leader struct {
	Epoch  uint64 `json:"epoch"` // rises with every leadership; 0: nobody has led yet
	Holder string `json:"holder"`
	Seq    uint64 `json:"seq"` // last sequence of the leader's literal subject: what every decision expects
}

// Plan is one model's plan. An entry exists as soon as anything was stored on the
// model's publish subject.
type Plan struct {
	Planned    events.JSON[*publish.Planned] `json:"planned,omitzero"` // nil V: never planned, or withdrawn
	PlannedSeq uint64                        `json:"planned_seq"`      // of the Planned or Withdrawn that decided Planned; 0: none
	Failed     string                        `json:"failed,omitempty"` // why the newest attempt failed; an older plan stays in force
	Cause      uint64                        `json:"cause"`            // sequence of the load fact last answered, be it by a failure
	Canary     Canary                        `json:"canary,omitzero"`  // the newest
	Seq        uint64                        `json:"seq"`              // last sequence of the model's literal publish subject: what the next append expects
}

// New is the view before the first event.
func New() State { return State{Plans: map[string]Plan{}} }

// Fold returns the state after r, and consumes s. The same log folds to the same State.
func Fold(s State, r events.Recorded) State {
	p, readable, mine := fold.Enter(&s.Seq, &s.Skipped, r, "publish")
	if !mine {
		return s
	}
	if p.Aggregate == publish.Leader {
		s.Leader.Seq = r.Seq
		e, _ := r.Event.(*publish.Event)
		switch led := e.GetLed(); {
		case !readable:
		case led == nil:
			s.Skipped = s.Skipped.Count(fold.Unknown)
		default:
			s.Leader.Epoch, s.Leader.Holder = led.GetEpoch(), led.GetHolder()
		}
		return s
	}
	m := s.Plans[p.Aggregate]
	m.Seq = r.Seq
	if readable && !m.apply(r) {
		s.Skipped = s.Skipped.Count(fold.Unknown)
	}
	s.Plans[p.Aggregate] = m
	return s
}

// apply is false for a body it does not know.
func (m *Plan) apply(r events.Recorded) bool {
	e, _ := r.Event.(*publish.Event)
	switch b := e.GetBody().(type) {
	case *publish.Event_Planned:
		m.Planned.V, m.PlannedSeq, m.Failed, m.Cause = b.Planned, r.Seq, "", b.Planned.GetCause()
	case *publish.Event_Withdrawn:
		m.Planned.V, m.PlannedSeq, m.Failed, m.Cause = nil, r.Seq, "", b.Withdrawn.GetCause()
	case *publish.Event_PlanFailed:
		m.Failed, m.Cause = b.PlanFailed.GetReason(), b.PlanFailed.GetCause()
	case *publish.Event_CanaryDeclared:
		m.Canary = Canary{DeclaredSeq: r.Seq}
		m.Canary.Declared.V = b.CanaryDeclared
	case *publish.Event_CanaryDecided:
		m.Canary.Decided.V = b.CanaryDecided
	default:
		return false
	}
	return true
}
