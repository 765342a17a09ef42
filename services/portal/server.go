// Package portal decides what should be served: it declares models, accepts or refuses
// loads and unloads, declares saved models and fills layouts, and alone writes the facts
// of the model and layout contexts.
package portal

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/monolith-go/monolith/internal/process/prom"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/react"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/tracectx"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/projections/savedmodels"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/role"
)

const source = "portal"

// Server is the role.
type Server struct {
	cfg          Config
	env          services.Env
	ready        chan struct{}
	catalog      *follow.Follower[models.State]
	layout       *follow.Follower[savedmodels.State]
	lineage      *follow.Follower[lineage.State]
	openRequests *follow.Follower[openRequests]
	store        role.Store
	commands     *prometheus.CounterVec
}

// New checks cfg and starts nothing.
func New(cfg Config, env services.Env) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("portal: %w", err)
	}
	o := follow.Options{SnapshotDir: cfg.SnapshotDir, Log: env.Log, Metrics: env.Metrics}
	s := &Server{
		cfg: cfg, env: env, ready: make(chan struct{}),
		catalog:      follow.New(env.Bus.Log(), registry.Catalog.Only(env.BZID), o),
		layout:       follow.New(env.Bus.Log(), registry.Layout.Only(env.BZID), o),
		lineage:      follow.New(env.Bus.Log(), registry.Lineage.Only(env.BZID), o),
		openRequests: follow.New(env.Bus.Log(), openRequestsView.Only(env.BZID), o),
		commands: prom.Register(env.Metrics, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_portal_commands_total",
			Help: "Commands answered, by command and by code of the refusal (ok: none).",
		}, []string{"command", "code"})),
	}
	s.store = role.Store{Log: env.Bus.Log(), Source: source, Wait: role.Waits(s.catalog.Wait, s.layout.Wait, s.lineage.Wait, s.openRequests.Wait)}
	return s, nil
}

// Ready is closed once every command answers from a view that has caught up.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends; a clean stop returns nil.
func (s *Server) Run(ctx context.Context) error {
	return role.Run(ctx, "portal", s.catalog.Run, s.layout.Run, s.lineage.Run, s.openRequests.Run, s.serve)
}

// serve answers once the views have caught up.
func (s *Server) serve(ctx context.Context) error {
	if !role.Ready(ctx, s.catalog.Ready(), s.layout.Ready(), s.lineage.Ready(), s.openRequests.Ready()) {
		return nil
	}
	reactions := react.New(role.Reactions(s.env, source))
	reactions.Handle(requestsReaction, 1, s.owed, s.answer)
	stop, err := s.env.Bus.Commands().Serve(ctx, bus.Service{
		BZID: s.env.BZID, Name: source, Version: "1.0.0",
		Description: "what should be served: models, saved models, layouts",
		Endpoints: map[string]bus.Handler{
			"declare":           s.count("declare", s.handleDeclare),
			"load":              s.count("load", s.handleLoad),
			"unload":            s.count("unload", s.handleUnload),
			"models":            s.count("models", s.handleModels),
			"declareSavedModel": s.count("declareSavedModel", s.handleDeclareSavedModel),
			"removeSavedModel":  s.count("removeSavedModel", s.handleRemoveSavedModel),
			"declareExport":     s.count("declareExport", s.handleDeclareExport),
			"addLayoutEntry":    s.count("addLayoutEntry", s.handleAddEntry),
			"removeLayoutEntry": s.count("removeLayoutEntry", s.handleRemoveEntry),
			"publish":           s.count("publish", s.handlePublish),
			"unpublish":         s.count("unpublish", s.handleUnpublish),
			"bzidInfo":          s.count("bzidInfo", s.handleBZIDInfo),
			"syncTargets":       s.count("syncTargets", s.handleSyncTargets),
			"state":             role.State(map[string]role.View{models.Name: s.catalog, savedmodels.Name: s.layout, openRequestsView.Name: s.openRequests}),
		},
	})
	if err != nil {
		return fmt.Errorf("serve commands: %w", err)
	}
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return reactions.Run(ctx) })
	g.Go(func() error {
		if role.Ready(ctx, reactions.Ready()) {
			close(s.ready)
		}
		return nil
	})
	return g.Wait()
}

// model is the catalogue's entry, zero for a model nobody mentioned yet. Its messages
// are shared with the view: they are read, never changed.
func (s *Server) model(name string) (m models.Model) {
	s.catalog.Read(func(c models.State) { m = c.Models[name] })
	return m
}

// learners are the running jobs that learn a model, by name.
func (s *Server) learners(name string) (jobs []learner) {
	s.lineage.Read(func(l lineage.State) {
		for _, job := range slices.Sorted(maps.Keys(l.Jobs)) {
			if j := l.Jobs[job]; j.Started.V.GetModelName() == name && !j.Stopped {
				jobs = append(jobs, learner{job, j.Started.V.GetSpecHash()})
			}
		}
	})
	return jobs
}

// answered says whether the request at seq has its answer, or its letter.
func (s *Server) answered(seq uint64) (yes bool) {
	s.openRequests.Read(func(l openRequests) { yes = seq <= l.Answered })
	return yes
}

// count bounds and counts one command.
func (s *Server) count(command string, h bus.Handler) bus.Handler {
	bounded := role.Handler(h)
	return func(ctx context.Context, payload []byte) (reply []byte, err error) {
		if ctx, payload, err = expecting(ctx, payload); err == nil {
			reply, err = bounded(ctx, payload)
		}
		code := "ok"
		if refusal, isRefusal := err.(*bus.CommandError); isRefusal {
			code = refusal.Code
			s.env.Log.Info("command refused", "command", source+"."+command, "code", code, "reason", refusal.Message)
		}
		s.commands.WithLabelValues(command, code).Inc()
		return reply, err
	}
}

func (s *Server) handleDeclare(ctx context.Context, payload []byte) ([]byte, error) {
	var ask model.DeclareRequested
	if err := role.Decode(payload, &ask, `{"spec":{"name":"movies",…}}`); err != nil {
		return nil, err
	}
	name := ask.GetSpec().GetName()
	var declared uint64
	// Jobs start and stop on other subjects than the model's.
	last, err := s.env.Bus.Log().Last(ctx)
	if err == nil {
		err = s.lineage.Wait(ctx, last)
	}
	if err != nil {
		return nil, err
	}
	return s.append(ctx, s.modelSubject(name), func() ([]bus.Draft, uint64, *bus.CommandError) {
		m := s.model(name)
		drafts, refusal := decideDeclare(s.env.BZID, m, s.learners(name), ask.GetSpec())
		s.openRequests.Read(func(l openRequests) { declared = l.Declared[name] })
		if refusal == nil && declared > 0 && sameSpec(m, ask.GetSpec()) {
			return nil, declared, nil
		}
		return drafts, declared, refusal
	})
}

func (s *Server) handleLoad(ctx context.Context, payload []byte) ([]byte, error) {
	var ask model.Load
	if err := role.Decode(payload, &ask, `{"modelName":"movies","modelDir":"/…/exported_models","job":"movies","follow":true}`); err != nil {
		return nil, err
	}
	last, err := s.env.Bus.Log().Last(ctx)
	if err == nil {
		err = s.lineage.Wait(ctx, last) // so that whoever has heard of an export may load it
	}
	if err != nil {
		return nil, err
	}
	return s.append(ctx, s.modelSubject(ask.GetModelName()), func() ([]bus.Draft, uint64, *bus.CommandError) { return s.load(&ask, false) })
}

func (s *Server) handleUnload(ctx context.Context, payload []byte) ([]byte, error) {
	var ask struct {
		ModelName string `json:"modelName"`
		Snake     string `json:"model_name"`
		Reason    string `json:"reason"`
	}
	if err := role.DecodeJSON(payload, &ask, `{"modelName":"movies","reason":"no longer needed"}`); err != nil {
		return nil, err
	}
	name := ask.ModelName
	if name == "" {
		name = ask.Snake
	}
	return s.append(ctx, s.modelSubject(name), func() ([]bus.Draft, uint64, *bus.CommandError) {
		drafts, refusal := decideUnload(s.env.BZID, name, s.model(name), ask.Reason)
		return drafts, 0, refusal
	})
}

func (s *Server) modelSubject(name string) events.Subject {
	return model.Subject(s.env.BZID, name)
}

// append stores what decide drafts and answers with the last fact's sequence, or, when
// there is nothing to store, with the sequence of the fact that holds already. decide
// sees every fact on the subject that anybody has seen before the call: an expected sequence would
// catch a late view's draft, but nothing its refusal. A command that expects the aggregate
// as it has seen it is refused once anything else stands there.
func (s *Server) append(ctx context.Context, subject events.Subject, decide func() ([]bus.Draft, uint64, *bus.CommandError)) ([]byte, error) {
	seq, err := s.appendSeq(ctx, subject, decide)
	if err != nil {
		return nil, err
	}
	return role.Seq(seq), nil
}

// appendSeq is append, with the sequence as a number.
func (s *Server) appendSeq(ctx context.Context, subject events.Subject, decide func() ([]bus.Draft, uint64, *bus.CommandError)) (uint64, error) {
	last, err := s.env.Bus.Log().LastOf(ctx, subject)
	if err != nil {
		return 0, err
	}
	if err := s.store.Wait(ctx, last); err != nil {
		return 0, err
	}
	expect := expected(ctx)
	if last > expect {
		return 0, changed(expect)
	}
	var standing uint64
	trace := tracectx.Of(ctx)
	again := false
	_, seqs, err := s.store.Append(ctx, func() ([]bus.Draft, error) {
		if again && expect != bus.Any { // the append met somebody else's event
			return nil, changed(expect)
		}
		again = true
		drafts, seq, refusal := decide()
		if refusal != nil {
			return nil, refusal
		}
		standing = seq
		for i := range drafts {
			drafts[i].Header.Traceparent = trace
			if drafts[i].Expect != bus.Any && drafts[i].Expect > expect { // folded since
				return nil, changed(expect)
			}
		}
		return drafts, nil
	})
	if err != nil {
		return 0, err
	}
	if len(seqs) > 0 {
		standing = seqs[len(seqs)-1]
	}
	return standing, nil
}

// handleModels lists the catalogue by name.
func (s *Server) handleModels(context.Context, []byte) ([]byte, error) {
	var reply []byte
	var err error
	s.catalog.Read(func(c models.State) { reply, err = json.Marshal(list(c)) })
	return reply, err
}
