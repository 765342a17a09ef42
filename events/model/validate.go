// Package model holds the facts about what should be served: models declared, loaded
// and unloaded. The portal owns them.
package model

import (
	"path/filepath"

	"github.com/monolith-go/monolith/events"
)

// Validate reports the rules that e breaks on the subject of aggregate, the model's
// name, as an [events.ErrInvalid]. Whether a spec makes a working model is the
// portal's to decide.
func (e *Event) Validate(aggregate string) error {
	var r events.Rules
	r.Named("the model", aggregate)
	r.Bounded(e)
	switch b := e.GetBody().(type) {
	case *Event_DeclareRequested:
		spec(&r, aggregate, b.DeclareRequested.GetSpec())
	case *Event_Declared:
		spec(&r, aggregate, b.Declared.GetSpec())
	case *Event_LoadRequested:
		load(&r, aggregate, b.LoadRequested.GetLoad())
	case *Event_LoadAccepted:
		l := b.LoadAccepted.GetLoad()
		load(&r, aggregate, l)
		r.Check(l.GetVersion() > 0, "an accepted load has its version resolved")
		r.Check(l.GetNumShard() > 0, "an accepted load has its number of shards resolved")
	case *Event_LoadRefused:
		r.Reason("a refusal", b.LoadRefused.GetReason())
	case *Event_DeclareRefused:
		r.Reason("a refusal", b.DeclareRefused.GetReason())
	case *Event_UnloadRefused:
		r.Reason("a refusal", b.UnloadRefused.GetReason())
	}
	return r.Err()
}

func spec(r *events.Rules, aggregate string, s *ModelSpec) {
	r.Check(s != nil, "a declaration needs its spec")
	r.Check(s.GetName() == aggregate, "the spec is of model %q, its subject of %q", s.GetName(), aggregate)
}

func load(r *events.Rules, aggregate string, l *Load) {
	r.Check(l != nil, "load must be given: {\"loadRequested\":{\"load\":{\"modelName\":…,\"modelDir\":…}}}")
	r.Check(l.GetModelName() == aggregate, "the body names model %q, its subject %q", l.GetModelName(), aggregate)
	r.Check(filepath.IsAbs(l.GetModelDir()), "model_dir %q must be an absolute path to exported_models", l.GetModelDir())
	r.Check(l.GetVersion() >= 0, "version %d must be 0 (newest) or an exported version", l.GetVersion())
	r.Check(l.GetNumShard() >= -1 && l.GetNumShard() <= 4096, "num_shard %d must be -1, 0 (as exported) or up to 4096", l.GetNumShard())
	r.Check(l.GetReplicas() <= 1024, "%d replicas, at most 1024 are allowed", l.GetReplicas())
	r.Text("job", l.GetJob(), events.MaxName)
	r.Payload("the load", 1024+events.JSONSize(l.GetModelName(), l.GetModelDir(), l.GetCkpt())+events.JSONSize(l.GetSpecReplicas()...))
}
