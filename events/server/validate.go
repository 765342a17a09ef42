// Package server holds the facts about model-server processes. The tfs-supervisor of
// the container owns them.
package server

import "github.com/monolith-go/monolith/events"

// Validate reports the rules that e breaks on the subject of aggregate, the container's
// id, as an [events.ErrInvalid].
func (e *Event) Validate(aggregate string) error {
	var r events.Rules
	r.Named("the container", aggregate)
	r.Bounded(e)
	switch b := e.GetBody().(type) {
	case *Event_ModelLoading:
		b.ModelLoading.GetModel().rules(&r)
	case *Event_ModelAvailable:
		b.ModelAvailable.GetModel().rules(&r)
	case *Event_ModelUnloading:
		b.ModelUnloading.GetModel().rules(&r)
	case *Event_ModelFailed:
		b.ModelFailed.GetModel().rules(&r)
		r.Reason("a failure", b.ModelFailed.GetReason())
	}
	return r.Err()
}

func (m *Model) rules(r *events.Rules) {
	r.Named("the model", m.GetModelName())
	r.Named("the sub-model", m.GetSubModel())
}
