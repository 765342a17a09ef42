package publisher

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/services/publisher/canary"
)

// leadership is one term: what it appends under, and the canaries that it measures.
type leadership struct {
	led *publish.Led

	mu      sync.Mutex // guards running
	running map[string]*running
	ended   sync.WaitGroup
}

// running is a canary that is measured.
type running struct {
	seq     uint64 // of its declaration
	measure *canary.Measure
	stop    context.CancelFunc
}

// measureAt names where canaries are measured.
func (s *Server) measureAt() (err error) {
	c := s.cfg
	if c.RatingsTopic == "" {
		c.RatingsTopic = kafka.TopicOf(s.env.BZID, impression.RatingsTopic)
	}
	if c.PredictionsTopic == "" {
		c.PredictionsTopic = kafka.TopicOf(s.env.BZID, impression.Topic)
	}
	s.source = canary.Source{Brokers: c.Brokers, Ratings: c.RatingsTopic, Predictions: c.PredictionsTopic}
	if s.source.Format, err = input.ParseFormat(c.Format); err != nil {
		return err
	}
	s.source.Access, err = c.Access.Access()
	return err
}

// follow measures what runs, and nothing else. The goroutines are the term's, until its end.
func (t *leadership) follow(ctx context.Context, s *Server) {
	now := map[string]plan.Canary{}
	s.plan.Read(func(p plan.State) {
		for name, x := range p.Plans {
			if x.Running() != nil {
				now[name] = x.Canary
			}
		}
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, r := range t.running {
		if now[name].DeclaredSeq != r.seq {
			r.stop()
			delete(t.running, name)
		}
	}
	for name, c := range now {
		if t.running[name] != nil {
			continue
		}
		var spec *model.ModelSpec
		s.catalog.Read(func(c models.State) { spec = c.Models[name].Spec.V })
		ctx, stop := context.WithCancel(ctx)
		r := &running{seq: c.DeclaredSeq, stop: stop, measure: canary.NewMeasure(s.source, c.Declared.V, spec, s.env.Log, s.look)}
		t.running[name] = r
		t.ended.Go(func() { r.measure.Run(ctx) })
	}
}

// look has the loop look at the models at once.
func (s *Server) look() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// end stops measuring.
func (t *leadership) end() {
	t.mu.Lock()
	for _, r := range t.running {
		r.stop()
	}
	t.mu.Unlock()
	t.ended.Wait()
}

// of is the measure of the canary that was declared at seq, nil where there is none yet.
func (t *leadership) of(name string, seq uint64) *canary.Measure {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.running[name]; r != nil && r.seq == seq {
		return r.measure
	}
	return nil
}

// verdict ends the canary that runs, nil while it goes on. Whoever loads or unloads the model ends it.
func (s *Server) verdict(m models.Model, now plan.Plan) *publish.CanaryDecided {
	c := now.Running()
	if c == nil {
		return nil
	}
	if m.Load.V == nil || m.LoadSeq != c.GetCause() {
		what := "loaded anew"
		if m.Load.V == nil {
			what = "unloaded"
		}
		return s.ended(c, now, fmt.Sprintf("the model was %s by event %d while the canary ran", what, m.LoadSeq))
	}
	t := s.term.Load()
	if t == nil {
		return nil
	}
	measure := t.of(c.GetModelName(), now.Canary.DeclaredSeq)
	if measure == nil {
		return nil
	}
	v := measure.Judge(time.Now())
	if v != nil {
		v.Cause = now.Canary.DeclaredSeq
	}
	return v
}

// ended is the rollback of a canary that somebody has ended, with the figures so far.
func (s *Server) ended(c *publish.CanaryDeclared, now plan.Plan, reason string) *publish.CanaryDecided {
	stable, candidate := &publish.Figures{Version: c.GetStable()}, &publish.Figures{Version: c.GetCandidate()}
	if t := s.term.Load(); t != nil {
		if measure := t.of(c.GetModelName(), now.Canary.DeclaredSeq); measure != nil {
			stable, candidate, _ = measure.Figures()
		}
	}
	v := canary.Verdict(c, publish.CanaryDecided_ROLLED_BACK, reason, stable, candidate)
	v.Cause = now.Canary.DeclaredSeq
	return v
}

// promoted is the load with the version that its canaries have put in the place of its own.
func promoted(m models.Model, now plan.Plan) *model.Load {
	v := now.Stable(m.LoadSeq)
	if m.Load.V == nil || v == 0 || v == m.Load.V.GetVersion() {
		return m.Load.V
	}
	load := proto.CloneOf(m.Load.V) // the view's own must not change
	load.Version = v
	return load
}

// decideCanary completes what was asked for, or refuses it.
func decideCanary(name string, m models.Model, now plan.Plan, ask *publish.CanaryDeclared) (*publish.CanaryDeclared, *bus.CommandError) {
	planned := now.Planned.V
	switch running := now.Running(); {
	case m.Load.V == nil:
		return nil, bus.Refuse(bus.CodeNotFound, "model %q is not loaded: load the stable version first", name)
	case m.Load.V.GetFollow():
		return nil, bus.Refuse(bus.CodeInvalid, "model %q follows its export, so none of its versions is a stable one: load it by version first, without follow", name)
	case m.Spec.V == nil:
		return nil, bus.Refuse(bus.CodeInvalid, "model %q is not declared, so its ratings cannot be read: call portal.declare first", name)
	case planned == nil || planned.GetCause() != m.LoadSeq:
		return nil, bus.Refuse(bus.CodeUnavailable, "the load of model %q at event %d is not planned yet: ask again", name, m.LoadSeq)
	case running != nil:
		return nil, bus.Refuse(bus.CodeConflict, "version %d of model %q is a canary since event %d: wait for its verdict, or end it with monolith canary stop %s", running.GetCandidate(), name, now.Canary.DeclaredSeq, name)
	case ask.GetStable() != 0 && ask.GetStable() != planned.GetVersion():
		return nil, bus.Refuse(bus.CodeInvalid, "version %d of model %q is planned, not version %d", planned.GetVersion(), name, ask.GetStable())
	}
	c := proto.CloneOf(ask)
	c.ModelName, c.Stable, c.Cause = name, planned.GetVersion(), m.LoadSeq
	if err := c.Validate(); err != nil {
		return nil, bus.Refuse(bus.CodeInvalid, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return c, nil
}

// fits refuses a candidate that cannot stand beside what is planned: it needs the same sub-models.
func fits(name string, planned *publish.Planned, version int64, sizes map[string]uint64) *bus.CommandError {
	shards := uint32(0)
	for sub := range sizes {
		if kind, _, _ := roleOf(sub); kind == "ps" {
			shards++
		}
	}
	for _, a := range planned.GetAssignments() {
		for sub := range a.GetSubModels() {
			if _, ok := sizes[sub]; !ok {
				return bus.Refuse(bus.CodeInvalid, "version %d of model %q has no %s, which is planned: take a version that was exported in as many parts", version, name, sub)
			}
		}
	}
	if shards != planned.GetNumPs() {
		return bus.Refuse(bus.CodeInvalid, "version %d of model %q has %d shards and version %d has %d: take one that was exported in as many", version, name, shards, planned.GetVersion(), planned.GetNumPs())
	}
	return nil
}
