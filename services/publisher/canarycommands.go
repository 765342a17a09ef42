package publisher

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/compat/modelinfo"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/projections/servers"
	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/publisher/canary"
)

// canaryLasts is how long a canary may take that does not say when it expires.
const canaryLasts = 24 * time.Hour

// leading is this publisher's term, or why there is none: who stands by knows no figures and decides nothing.
func (s *Server) leading() (*leadership, error) {
	if t := s.term.Load(); t != nil {
		return t, nil
	}
	return nil, bus.Refuse(bus.CodeUnavailable, "publisher %s leads, and this one stands by: ask again", s.leader().Holder)
}

// of is what the views know of a model, once they hold all that anybody has seen of it.
func (s *Server) of(ctx context.Context, name string) (m models.Model, now plan.Plan, err error) {
	last, err := s.env.Bus.Log().Last(ctx)
	if err == nil {
		err = s.store.Wait(ctx, last)
	}
	if err != nil {
		return m, now, err
	}
	s.catalog.Read(func(c models.State) { m = c.Models[name] })
	s.plan.Read(func(p plan.State) { now = p.Plans[name] })
	return m, now, nil
}

func (s *Server) handleCanaryStart(ctx context.Context, payload []byte) ([]byte, error) {
	var ask publish.CanaryDeclared
	if err := role.Decode(payload, &ask, `{"modelName":"movies","candidate":"9","share":0.1,"mode":"SHADOW","rule":{"minRatings":1000,"maxAucLoss":0.01}}`); err != nil {
		return nil, err
	}
	t, err := s.leading()
	if err != nil {
		return nil, err
	}
	if len(s.source.Brokers) == 0 {
		return nil, bus.Refuse(bus.CodeInvalid, "the publisher was started without --kafka, so it cannot measure a canary: start it with the brokers of the topics %s and %s", s.source.Ratings, s.source.Predictions)
	}
	if ask.GetExpiresMs() == 0 {
		ask.ExpiresMs = time.Now().Add(canaryLasts).UnixMilli()
	}
	if at := time.UnixMilli(ask.GetExpiresMs()); !at.After(time.Now()) {
		return nil, bus.Refuse(bus.CodeInvalid, "the canary would have expired at %s: give a time to come", at.UTC().Format(time.RFC3339))
	}
	name := ask.GetModelName()
	m, now, err := s.of(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, refusal := decideCanary(name, m, now, &ask); refusal != nil {
		return nil, refusal
	}
	sizes, err := s.scale.measure(export{m.Load.V.GetModelDir(), m.Load.V.GetCkpt(), ask.GetCandidate()})
	if err != nil {
		there, _ := modelinfo.Versions(m.Load.V.GetModelDir()) // what keeps it from being read is in err
		return nil, bus.Refuse(bus.CodeInvalid, "version %d of model %q cannot be read: %v; its folder holds the versions %v", ask.GetCandidate(), name, err, there)
	}
	if refusal := fits(name, now.Planned.V, ask.GetCandidate(), sizes); refusal != nil {
		return nil, refusal
	}
	if ask.Ratings, ask.Predictions, err = s.source.Begin(ctx); err != nil {
		return nil, bus.Refuse(bus.CodeUnavailable, "the canary cannot be measured: %v", err)
	}
	return s.canaryFact(ctx, t, name, func(m models.Model, now plan.Plan) (*publish.Event, *bus.CommandError) {
		c, refusal := decideCanary(name, m, now, &ask)
		return &publish.Event{Body: &publish.Event_CanaryDeclared{CanaryDeclared: c}}, refusal
	})
}

func (s *Server) handleCanaryStop(ctx context.Context, payload []byte) ([]byte, error) {
	var ask struct {
		ModelName string `json:"modelName"`
		Reason    string `json:"reason"`
	}
	if err := role.DecodeJSON(payload, &ask, `{"modelName":"movies","reason":"it is not needed"}`); err != nil {
		return nil, err
	}
	t, err := s.leading()
	if err != nil {
		return nil, err
	}
	if _, _, err := s.of(ctx, ask.ModelName); err != nil {
		return nil, err
	}
	if ask.Reason == "" {
		ask.Reason = "it was stopped"
	}
	return s.canaryFact(ctx, t, ask.ModelName, func(_ models.Model, now plan.Plan) (*publish.Event, *bus.CommandError) {
		c := now.Running()
		if c == nil {
			return nil, bus.Refuse(bus.CodeNotFound, "model %q has no canary that runs: see monolith canary status %s", ask.ModelName, ask.ModelName)
		}
		return &publish.Event{Body: &publish.Event_CanaryDecided{CanaryDecided: s.ended(c, now, ask.Reason)}}, nil
	})
}

// canaryFact appends what decide makes of the newest views, behind the fence of the term.
func (s *Server) canaryFact(ctx context.Context, t *leadership, name string, decide func(models.Model, plan.Plan) (*publish.Event, *bus.CommandError)) ([]byte, error) {
	drafts, seqs, err := s.store.Append(ctx, func() ([]bus.Draft, error) {
		var m models.Model
		var now plan.Plan
		var leader plan.Leader
		s.catalog.Read(func(c models.State) { m = c.Models[name] })
		s.plan.Read(func(p plan.State) { now, leader = p.Plans[name], p.Leader })
		e, refusal := decide(m, now)
		if refusal != nil {
			return nil, refusal
		}
		return s.fence(proto.CloneOf(t.led), leader, []bus.Draft{fact(s.env.BZID, name, now.Seq, e)})
	})
	if err != nil {
		return nil, err
	}
	s.noted(name, drafts, seqs)
	s.look()
	return role.Seq(seqs[len(seqs)-1]), nil
}

func (s *Server) handleCanary(ctx context.Context, payload []byte) ([]byte, error) {
	var ask struct {
		ModelName string `json:"modelName"`
	}
	if err := role.DecodeJSON(payload, &ask, `{"modelName":"movies"}`); err != nil {
		return nil, err
	}
	t, err := s.leading()
	if err != nil {
		return nil, err
	}
	_, now, err := s.of(ctx, ask.ModelName)
	if err != nil {
		return nil, err
	}
	c := now.Canary
	if c.Declared.V == nil {
		return nil, bus.Refuse(bus.CodeNotFound, "model %q has had no canary: start one with monolith canary start %s --candidate VERSION", ask.ModelName, ask.ModelName)
	}
	out := canary.Status{Declared: c.Declared, DeclaredSeq: c.DeclaredSeq, Decided: c.Decided}
	out.Stable.V, out.Candidate.V = c.Decided.V.GetStableFigures(), c.Decided.V.GetCandidateFigures()
	s.servers.Read(func(told servers.State) {
		s.fleet.Read(func(f fleet.State) {
			s.lineage.Read(func(l lineage.State) { out.Places = canary.Places(now, told, f, l) })
		})
	})
	if c.Decided.V == nil {
		out.Problem = "it is about to be measured"
		if measure := t.of(ask.ModelName, c.DeclaredSeq); measure != nil {
			out.Problem = ""
			if out.Stable.V, out.Candidate.V, err = measure.Figures(); err != nil {
				out.Problem = err.Error()
			}
		}
	}
	return json.Marshal(out)
}
