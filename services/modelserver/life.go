package modelserver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/ckpt"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
)

// callTimeout bounds one question to the bus.
const callTimeout = 5 * time.Second

// planned is the model's plan as this server sees it, nil without one.
func (s *Server) planned(model string) (p *publish.Planned) {
	s.plan.Read(func(st plan.State) { p = st.Plans[model].Planned.V })
	return p
}

// targetOf is what the plan asks of v; a model without a plan is served as exported.
func (s *Server) targetOf(v *version) target {
	p := s.planned(v.model)
	t := target{numPS: int(min(p.GetNumPs(), maxShards)), job: p.GetJob()}
	if s.cfg.Frozen {
		t.job = ""
	}
	return t
}

// catchUp waits until the views hold everything that was in the log when it was called:
// whoever asked for a load had seen its plan, and so must this server.
func (s *Server) catchUp(ctx context.Context) error {
	for {
		ask, cancel := context.WithTimeout(ctx, callTimeout)
		last, err := s.env.Bus.Log().Last(ask)
		if err == nil {
			err = errors.Join(s.plan.Wait(ask, last), s.lineage.Wait(ask, last))
		}
		cancel()
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		s.env.Log.Warn("waiting for the control plane before a model is loaded", "err", err)
		if !sleep(ctx, 200*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// place is where a generation is read from: the configured version, or a newer export
// when the deltas behind the configured one are gone.
type place struct {
	basePath string
	number   int64
}

// serve is one version's life: load, catch up, answer, follow, until ctx ends. The
// first load decides whether the version ends with an error; once it answers, nothing
// but ctx ends it.
func (s *Server) serve(ctx context.Context, v *version) error {
	log := s.env.Log.With("model", v.name, "version", v.number)
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	at := place{v.basePath, v.number}
	for {
		t := s.targetOf(v)
		began := time.Now()
		g, err := s.load(v, at, t)
		if err != nil {
			s.metrics.loads.WithLabelValues("failed").Inc()
			if s.shelf.stateOf(v) != stateAvailable && at.number == v.number {
				log.Error("model not loaded", "err", err)
				return err
			}
			log.Error("model not loaded anew; what is there goes on being served", "path", at.basePath, "export", at.number, "err", err)
			if !sleep(ctx, time.Second) {
				return ctx.Err()
			}
			at = s.newest(v, t.job, at)
			continue
		}
		s.metrics.loads.WithLabelValues("loaded").Inc()
		log.Info("model read", "export", at.number, "job", t.job, "sync_seq", g.syncSeq, "took", time.Since(began))
		switch err := s.keep(ctx, v, g, t); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, bus.ErrTrimmed):
			log.Warn("the deltas behind the export are gone; loading the newest export", "sync_seq", g.syncSeq, "err", err)
			next := s.newest(v, t.job, at)
			if next == at && !s.awaitExport(ctx) {
				return ctx.Err()
			}
			at = next
		default:
			log.Info("the plan has changed; loading again", "err", err)
		}
	}
}

// load reads what lies at a place; it answers as the configured version all the same.
func (s *Server) load(v *version, at place, t target) (g *generation, err error) {
	if v.shard < 0 {
		if g, err = loadEntry(v.model, at.basePath, at.number, t); err != nil {
			return nil, err
		}
		g.entry.version = v.number
	} else {
		if g, err = loadPS(v.model, at.basePath, v.shard, at.number, s.planned(v.model).GetModelDir(), t); err != nil {
			return nil, err
		}
		g.ps.version = v.number
	}
	// A shard that had nothing to say for long names an old sequence of its own; the
	// fact of the export knows how far the whole stream was when the cut was made.
	s.lineage.Read(func(st lineage.State) {
		for _, e := range st.Jobs[g.job].Exports {
			if e.V.GetVersion() == at.number {
				g.syncSeq = max(g.syncSeq, e.V.GetSyncSeq())
			}
		}
	})
	return g, nil
}

// newest is the newest export of the sub-model: among the copies beside the configured
// one, or where the job's last export fact says.
func (s *Server) newest(v *version, job string, now place) place {
	best := now
	if versions, err := ckpt.Versions(v.basePath); err == nil && len(versions) > 0 {
		if n := versions[len(versions)-1]; n > best.number {
			best = place{v.basePath, n}
		}
	}
	s.lineage.Read(func(st lineage.State) {
		for _, e := range st.Jobs[job].Exports {
			if n := e.V.GetVersion(); n > best.number {
				best = place{filepath.Join(e.V.GetModelDir(), v.sub), n}
			}
		}
	})
	return best
}

// awaitExport waits for the lineage to move, or a second.
func (s *Server) awaitExport(ctx context.Context) bool {
	wait, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	select {
	case <-s.lineage.Changed():
	case <-wait.Done():
	}
	return ctx.Err() == nil
}

var errPlanChanged = errors.New("another plan")

// keep serves g until ctx ends, its deltas are trimmed, or the plan for this version
// asks for something else. It makes v AVAILABLE once g has caught up.
func (s *Server) keep(ctx context.Context, v *version, g *generation, t target) error {
	var f *feed
	following := make(chan error, 1)
	caught := make(chan struct{})
	if t.job == "" {
		close(caught)
	} else {
		f = s.feed(v, g, t)
		for {
			ask, cancel := context.WithTimeout(ctx, callTimeout)
			err := f.aim(ask)
			cancel()
			if err == nil {
				break
			}
			s.env.Log.Warn("waiting for the delta stream", "model", v.name, "err", err)
			if !sleep(ctx, 200*time.Millisecond) {
				return ctx.Err()
			}
		}
		caught = f.caught
		fctx, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			following <- f.follow(fctx)
		}()
		defer func() {
			cancel()
			<-done
		}()
	}
	for {
		changed := s.plan.Changed()
		if p := s.planned(v.model); p != nil && p.GetVersion() == v.number && s.targetOf(v) != t {
			return errPlanChanged
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-following:
			if err == nil {
				err = ctx.Err()
			}
			return err
		case <-caught:
			caught = nil
			s.shelf.set(v, stateAvailable, g)
			s.env.Log.Info("model available", "model", v.name, "version", v.number)
		case <-changed:
		}
	}
}

func (s *Server) feed(v *version, g *generation, t target) *feed {
	f := &feed{
		bzid: s.env.BZID, job: t.job, dense: g.entry != nil, shards: g.shards,
		contained: g.contained, epochs: g.epochs, next: g.syncSeq + 1,
		bus: s.env.Bus.Deltas(), metrics: s.metrics, tracer: s.env.Tracer,
		log: s.env.Log.With("model", v.name, "job", t.job),
	}
	if g.job != t.job {
		f.log.Warn("the export was made by another job; its sync sequence is taken all the same", "exported_by", g.job)
	}
	if g.entry != nil {
		f.apply = func(d *delta.Delta, seq uint64, _ time.Time) error { return g.entry.apply(d, seq) }
	} else {
		f.apply = func(d *delta.Delta, seq uint64, at time.Time) error {
			return g.ps.apply(d, seq, uint32(at.Unix()))
		}
	}
	f.served = func(x flush) { s.fresh.add(subModel{v.model, v.sub}, x.seq, x.at) }
	return f
}

// notFound says what is missing, in the original's words.
func notFound(name string, number int64) string {
	if number > 0 {
		return fmt.Sprintf("Servable not found for request: Specific(%s, %d)", name, number)
	}
	return fmt.Sprintf("Servable not found for request: Latest(%s)", name)
}
