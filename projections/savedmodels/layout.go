// Package savedmodels is the view of what agents that follow layouts should serve, and of
// what they do serve: declared saved models, layouts, bindings and container services.
package savedmodels

import (
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/internal/fold"
)

// Name and Version identify the view's snapshots; Version rises with every change of
// State or of what Fold makes of a log.
const (
	Name    = "layout"
	Version = 1
)

// State is the view after the event at Seq.
type State struct {
	Seq        uint64               `json:"seq"`
	Models     map[string]Model     `json:"models"`     // by name; those without a saved model too
	Layouts    map[string]Layout    `json:"layouts"`    // by name; empty ones too
	Containers map[string]Container `json:"containers"` // serving and alive, by id
	Bindings   map[string]Binding   `json:"bindings"`   // live replicas, by their key
	Skipped    fold.Skipped         `json:"skipped,omitempty"`
}

// Model is what is declared of one model.
type Model struct {
	SavedModels map[string]events.JSON[*layout.DeployConfig] `json:"saved_models"` // by sub-graph; null: never any
	Seq         uint64                                       `json:"seq"`          // last sequence of the aggregate's literal subject: what the next append expects
}

// Layout is what agents that follow it are offered.
type Layout struct {
	Entries map[string]uint64 `json:"entries"` // {model}:{sub_graph} -> sequence at which it was added; null: never any
	Seq     uint64            `json:"seq"`     // last sequence of the aggregate's literal subject: what the next append expects
}

// Container is a live agent.
type Container struct {
	Container events.JSON[*container.Container] `json:"container"`
}

// Binding is a replica's place. It is in force while the replica is AVAILABLE and its
// container lives.
type Binding struct {
	Model     string `json:"model"`
	SubGraph  string `json:"sub_graph"`
	Container string `json:"container"`
	Available bool   `json:"available"`
}

// New is the view before the first event.
func New() State {
	return State{Models: map[string]Model{}, Layouts: map[string]Layout{}, Containers: map[string]Container{}, Bindings: map[string]Binding{}}
}

// Fold returns the state after r, and consumes s. The same log folds to the same State.
func Fold(s State, r events.Recorded) State {
	p, readable, mine := fold.Enter(&s.Seq, &s.Skipped, r, "layout", "container", "replica")
	if !mine {
		return s
	}
	known := true
	switch p.Context {
	case "layout":
		known = s.layout(p.Aggregate, r) || !readable
	case "container":
		known = !readable || s.container(p.Aggregate, r)
	case "replica":
		known = !readable || s.replica(p.Aggregate, r)
	}
	if !known {
		s.Skipped = s.Skipped.Count(fold.Unknown)
	}
	return s
}

// layout, like its siblings, is false for a body it does not know. It notes the expected sequence
// whatever the record holds.
func (s *State) layout(aggregate string, r events.Recorded) bool {
	model, name, ok := layout.Parse(aggregate)
	if !ok {
		return false
	}
	e, _ := r.Event.(*layout.Event)
	if model != "" {
		m := s.Models[model]
		m.Seq = r.Seq
		defer func() { s.Models[model] = m }()
		switch b := e.GetBody().(type) {
		case *layout.Event_SavedModelsDeclared:
			if m.SavedModels == nil {
				m.SavedModels = map[string]events.JSON[*layout.DeployConfig]{}
			}
			for _, d := range b.SavedModelsDeclared.GetSavedModels() {
				m.SavedModels[d.GetSubGraph()] = events.JSON[*layout.DeployConfig]{V: d.GetConfig()}
			}
			return true
		case *layout.Event_SavedModelsRemoved:
			for _, sub := range b.SavedModelsRemoved.GetSubGraphs() {
				delete(m.SavedModels, sub)
			}
			return true
		case *layout.Event_Refused:
			return true
		}
		return false
	}
	l := s.Layouts[name]
	l.Seq = r.Seq
	defer func() { s.Layouts[name] = l }()
	switch b := e.GetBody().(type) {
	case *layout.Event_EntriesAdded:
		if l.Entries == nil {
			l.Entries = map[string]uint64{}
		}
		for _, entry := range b.EntriesAdded.GetEntries() {
			l.Entries[entry] = r.Seq
		}
	case *layout.Event_EntriesRemoved:
		for _, entry := range b.EntriesRemoved.GetEntries() {
			delete(l.Entries, entry)
		}
	case *layout.Event_Refused:
	default:
		return false
	}
	return true
}

func (s *State) container(id string, r events.Recorded) bool {
	e, _ := r.Event.(*container.Event)
	switch b := e.GetBody().(type) {
	case *container.Event_Reported:
		if c := b.Reported.GetContainer(); c.GetKind() == "serving" {
			s.Containers[id] = Container{Container: events.JSON[*container.Container]{V: c}}
		} else {
			delete(s.Containers, id)
		}
	case *container.Event_Lost:
		delete(s.Containers, id)
	case *container.Event_ResourceReported:
	default:
		return false
	}
	return true
}

func (s *State) replica(key string, r events.Recorded) bool {
	e, _ := r.Event.(*replica.Event)
	switch b := e.GetBody().(type) {
	case *replica.Event_Registered:
		x := b.Registered.GetReplica()
		s.Bindings[key] = Binding{Model: x.GetModelName(), SubGraph: x.SubModel(), Container: x.GetContainer(), Available: x.GetStat() == replica.State_AVAILABLE}
	case *replica.Event_StateChanged:
		if x, live := s.Bindings[key]; live {
			x.Available = b.StateChanged.GetStat() == replica.State_AVAILABLE
			s.Bindings[key] = x
		}
	case *replica.Event_Lost:
		delete(s.Bindings, key)
	default:
		return false
	}
	return true
}
