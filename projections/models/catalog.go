// Package models is the view of what should be served: which models are declared and
// which of them somebody asked to load. The portal decides on it; the publisher follows.
package models

import (
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/projections/internal/fold"
)

// Name and Version identify the view's snapshots; Version rises with every change of
// State or of what Fold makes of a log.
const (
	Name    = "catalog"
	Version = 1
)

// State is the catalogue after the event at Seq.
type State struct {
	Seq     uint64           `json:"seq"`
	Models  map[string]Model `json:"models"`
	Skipped fold.Skipped     `json:"skipped,omitempty"`
}

// Model is one model by name. An entry exists as soon as anything was stored on the
// model's subject, so Spec and Load may both be absent.
type Model struct {
	Spec    events.JSON[*model.ModelSpec] `json:"spec,omitzero"` // nil V: not declared
	Load    events.JSON[*model.Load]      `json:"load,omitzero"` // nil V: not loaded
	LoadSeq uint64                        `json:"load_seq"`      // of the LoadAccepted or UnloadAccepted that decided Load; 0: none
	Seq     uint64                        `json:"seq"`           // last sequence of the model's literal subject, whatever it held: what the next append expects
}

// New is the catalogue before the first event.
func New() State { return State{Models: map[string]Model{}} }

// Fold returns the state after r, and consumes s. The same log folds to the same State.
func Fold(s State, r events.Recorded) State {
	p, readable, mine := fold.Enter(&s.Seq, &s.Skipped, r, "model")
	if !mine {
		return s
	}
	m := s.Models[p.Aggregate]
	m.Seq = r.Seq
	if readable && !m.apply(r) {
		s.Skipped = s.Skipped.Count(fold.Unknown)
	}
	s.Models[p.Aggregate] = m
	return s
}

// apply is false for a body it does not know.
func (m *Model) apply(r events.Recorded) bool {
	e, _ := r.Event.(*model.Event)
	switch b := e.GetBody().(type) {
	case *model.Event_Declared:
		m.Spec.V = b.Declared.GetSpec()
	case *model.Event_LoadAccepted:
		m.Load.V, m.LoadSeq = b.LoadAccepted.GetLoad(), r.Seq
	case *model.Event_UnloadAccepted:
		m.Load.V, m.LoadSeq = nil, r.Seq
	case *model.Event_DeclareRequested, *model.Event_LoadRequested, *model.Event_UnloadRequested,
		*model.Event_DeclareRefused, *model.Event_LoadRefused, *model.Event_UnloadRefused:
	default:
		return false
	}
	return true
}
