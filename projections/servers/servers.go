// Package servers is the view of what each running model server has been given: every version of every sub-model, with
// what its supervisor told of it last.
package servers

import (
	"strconv"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/server"
	"github.com/monolith-go/monolith/projections/internal/fold"
)

// Name and Version identify the view's snapshots; Version rises with every change of
// State or of what Fold makes of a log.
const (
	Name    = "servers"
	Version = 2
)

// State is the view after the event at Seq: versions by container, and by VersionKey.
type State struct {
	Seq        uint64                     `json:"seq"`
	Containers map[string]map[string]Told `json:"containers"`
	Skipped    fold.Skipped               `json:"skipped,omitempty"`
}

// Told is the last word on one version.
type Told struct {
	Phase  Phase  `json:"phase"`
	Reason string `json:"reason,omitempty"` // why it failed
	Seq    uint64 `json:"seq"`
}

// Phase of a version on its way to the requests.
type Phase string

// A version that is being unloaded is not in the view any more.
const (
	Loading   Phase = "loading"
	Available Phase = "available"
	Failed    Phase = "failed"
)

// New is the view before the first event.
func New() State { return State{Containers: map[string]map[string]Told{}} }

// Fold returns the state after r, and consumes s. The same log folds to the same State.
func Fold(s State, r events.Recorded) State {
	p, readable, mine := fold.Enter(&s.Seq, &s.Skipped, r, server.Context)
	if !mine || !readable {
		return s
	}
	e, _ := r.Event.(*server.Event)
	switch b := e.GetBody().(type) {
	case *server.Event_ProcessStarted, *server.Event_ProcessExited: // what another process had is gone with it
		delete(s.Containers, p.Aggregate)
	case *server.Event_ModelLoading:
		s.told(p.Aggregate, b.ModelLoading.GetModel(), Told{Loading, "", r.Seq})
	case *server.Event_ModelAvailable:
		s.told(p.Aggregate, b.ModelAvailable.GetModel(), Told{Available, "", r.Seq})
	case *server.Event_ModelFailed:
		s.told(p.Aggregate, b.ModelFailed.GetModel(), Told{Failed, b.ModelFailed.GetReason(), r.Seq})
	case *server.Event_ModelUnloading:
		m := b.ModelUnloading.GetModel()
		delete(s.Containers[p.Aggregate], VersionKey(m.GetModelName(), m.GetSubModel(), m.GetVersion()))
	default:
		s.Skipped = s.Skipped.Count(fold.Unknown)
	}
	return s
}

func (s *State) told(container string, m *server.Model, t Told) {
	if m.GetVersion() == 0 { // of the sub-model as a whole: no version that the server has
		return
	}
	if s.Containers[container] == nil {
		s.Containers[container] = map[string]Told{}
	}
	s.Containers[container][VersionKey(m.GetModelName(), m.GetSubModel(), m.GetVersion())] = t
}

// VersionKey names a version of a sub-model among those of a container.
func VersionKey(model, sub string, version int64) string {
	return model + "/" + sub + "/" + strconv.FormatInt(version, 10)
}
