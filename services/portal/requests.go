package portal

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/projections/lineage"
)

// owed matches what the portal must answer with a fact or a letter: requests, and
// whatever else lies on its subjects and is no fact of its own.
func (s *Server) owed(r events.Recorded) bool {
	p, err := r.Subject.Parse()
	return err == nil && p.BZID == s.env.BZID && owned(p.Context) && (p.Request || misplaced(r))
}

// answer turns one request of the log into the fact that answers it. An ErrInvalid,
// ErrMalformed or ErrUnknown has it parked. Stopped anywhere, it is simply asked again.
func (s *Server) answer(ctx context.Context, r events.Recorded) ([]bus.Draft, error) {
	p, err := r.Subject.Parse()
	if err != nil {
		return nil, err
	}
	if r.Err != nil {
		return nil, r.Err
	}
	subject := events.Join(s.env.BZID, p.Context, p.Aggregate)
	if !p.Request {
		return nil, fmt.Errorf("%w: nobody but the portal writes to %s: publish a request on %s", events.ErrInvalid, subject, subject.Request())
	}
	last, err := s.env.Bus.Log().LastOf(ctx, subject)
	if err != nil {
		return nil, err
	}
	if err := s.store.Wait(ctx, max(last, r.Seq)); err != nil {
		return nil, err
	}
	if s.answered(r.Seq) {
		return nil, nil // by another portal, or before a restart
	}
	decide := s.decideRequest
	if p.Context == "layout" {
		decide = s.decideLayoutRequest
	}
	drafts, err := decide(p.Aggregate, r)
	if err != nil {
		return nil, err
	}
	for i := range drafts {
		d := &drafts[i]
		d.Expect = max(d.Expect, last)
		d.Header.Source = source
		d.Header.Causation = r.Header.ID
		d.Header.Correlation = r.Header.Correlation
		if d.Header.Correlation == "" {
			d.Header.Correlation = r.Header.ID
		}
		if d.Header.Traceparent == "" {
			d.Header.Traceparent = r.Header.Traceparent
		}
	}
	return drafts, nil
}

// decideRequest answers a request with exactly one outcome: facts, a refusal fact, or an
// error for which it is parked.
func (s *Server) decideRequest(name string, r events.Recorded) ([]bus.Draft, error) {
	other := func(field, body string) error {
		return fmt.Errorf("%w: %s says %q, the subject %q: publish it on the subject of the model it names", events.ErrInvalid, field, body, name)
	}
	e, ok := r.Event.(*model.Event)
	if !ok {
		return nil, fmt.Errorf("%w: %T is no event of a model", events.ErrUnknown, r.Event)
	}
	m := s.model(name)
	bad := checkName("the model in the subject", name)
	switch b := e.GetBody().(type) {
	case *model.Event_DeclareRequested:
		spec := b.DeclareRequested.GetSpec()
		if spec != nil && spec.GetName() != name {
			return nil, other("spec.name", spec.GetName())
		}
		drafts, refusal := decideDeclare(s.env.BZID, m, s.learners(name), spec)
		if refusal != nil {
			drafts = s.refuse(name, m.Seq, &model.Event{Body: &model.Event_DeclareRefused{DeclareRefused: &model.DeclareRefused{Reason: refusal.Message}}})
		}
		return drafts, nil
	case *model.Event_LoadRequested:
		ask := b.LoadRequested.GetLoad()
		if ask.GetModelName() != name {
			return nil, other("load.modelName", ask.GetModelName())
		}
		if bad != nil {
			return s.refuseLoad(m.Seq, ask, bad), nil
		}
		drafts, _, refusal := s.load(ask, true)
		if refusal != nil {
			drafts = s.refuseLoad(m.Seq, ask, refusal)
		}
		return drafts, nil
	case *model.Event_UnloadRequested:
		drafts, refusal := decideUnload(s.env.BZID, name, m, b.UnloadRequested.GetReason())
		if refusal != nil {
			drafts = s.refuse(name, m.Seq, &model.Event{Body: &model.Event_UnloadRefused{UnloadRefused: &model.UnloadRefused{Reason: refusal.Message}}})
		}
		return drafts, nil
	case nil:
		return nil, fmt.Errorf("%w: the body says nothing this build understands", events.ErrUnknown)
	default:
		return nil, fmt.Errorf("%w: %T is a fact of the portal, no request", events.ErrInvalid, b)
	}
}

func (s *Server) refuse(name string, expect uint64, e *model.Event) []bus.Draft {
	return []bus.Draft{fact(s.env.BZID, name, expect, e)}
}

func (s *Server) refuseLoad(expect uint64, ask *model.Load, why *bus.CommandError) []bus.Draft {
	return s.refuse(ask.GetModelName(), expect, &model.Event{Body: &model.Event_LoadRefused{
		LoadRefused: &model.LoadRefused{Load: ask, Reason: why.Message}}})
}

// load inspects the folder, asks the facts for what of it is on other hosts, and decides; again has it
// answered with a fact even when the same load is in force.
func (s *Server) load(ask *model.Load, again bool) ([]bus.Draft, uint64, *bus.CommandError) {
	found := inspectAt(ask.GetModelDir(), ask.GetCkpt())
	s.lineage.Read(func(l lineage.State) {
		if known, ok := elsewhere(l, ask.GetModelDir(), ask.GetCkpt()); ok {
			found = found.and(known)
		}
	})
	m := s.model(ask.GetModelName())
	load, refusal := resolve(inherit(ask, m.Load.V), found)
	if refusal != nil {
		return nil, 0, refusal
	}
	var spec *model.ModelSpec
	if m.Spec.V == nil {
		var err error
		if spec, err = exportedSpec(load.GetModelDir(), load.GetVersion()); err != nil {
			return nil, 0, bus.Refuse(bus.CodeInvalid, "model %q is not declared, and %v: call portal.declare first", load.GetModelName(), err)
		}
	}
	drafts, refusal := decideLoad(s.env.BZID, m, load, spec, again)
	return drafts, m.LoadSeq, refusal
}
