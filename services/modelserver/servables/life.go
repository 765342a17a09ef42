package servables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/services/modelserver/entry"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// callTimeout bounds one question to the bus.
const callTimeout = 5 * time.Second

// planned is the model's plan as this server sees it, nil without one.
func (s *keeper) planned(model string) (p *publish.Planned) {
	s.Plan.Read(func(st plan.State) { p = st.Plans[model].Planned.V })
	return p
}

// targetOf is what the plan asks of v. Without a plan, as where a layout is served, nothing
// is asked.
func (s *keeper) targetOf(v *version) target {
	p := s.planned(v.model)
	return target{planned: p != nil, numPS: int(min(p.GetNumPs(), rows.MaxShards)), job: p.GetJob()}
}

// jobOf is whose deltas keep g fresh: the plan's job, or without a plan the job that made
// the export, as long as it is one of this installation's. Empty: nobody's.
func (s *keeper) jobOf(t target, g *servable) (job string) {
	switch {
	case s.Frozen:
		return ""
	case t.planned:
		return t.job
	}
	s.Lineage.Read(func(st lineage.State) {
		if _, ok := st.Jobs[g.job]; ok {
			job = g.job
		}
	})
	return job
}

// catchUp waits until the views hold everything that was in the log when it was called:
// whoever asked for a load had seen its plan, and so must this server.
func (s *keeper) catchUp(ctx context.Context) error {
	return s.retryBus(ctx, "control plane", func(ask context.Context) error {
		last, err := s.Bus.Log().Last(ask)
		if err != nil {
			return err
		}
		return errors.Join(s.Plan.Wait(ask, last), s.Lineage.Wait(ask, last), s.Fleet.Wait(ask, last))
	})
}

// retryBus asks the bus until it answers, or ctx ends. What does not work is reported under
// the name after its first few failures, until it works.
func (s *keeper) retryBus(ctx context.Context, name string, call func(context.Context) error) error {
	pause := retry.New(200*time.Millisecond, 5*time.Second)
	attempts := s.Health.Attempts(name)
	for {
		ask, cancel := context.WithTimeout(ctx, callTimeout)
		err := call(ask)
		cancel()
		if err == nil || ctx.Err() != nil {
			s.Health.OK(name)
			return ctx.Err()
		}
		s.Log.Warn("waiting for the bus", "for", name, "err", err)
		attempts.Failed(err)
		if pause.Wait(ctx) != nil {
			s.Health.OK(name)
			return ctx.Err()
		}
	}
}

// exportLocation is where a servable is read from: the configured version, or a newer export
// when the deltas behind the configured one are gone.
type exportLocation struct {
	basePath string
	number   int64
}

// serve is one version's life: load, catch up, answer, follow, until ctx ends. The
// first load decides whether the version ends with an error; once it answers, nothing
// but ctx ends it.
func (s *keeper) serve(ctx context.Context, v *version) error {
	log := s.Log.With("model", v.name, "version", v.number)
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	if err := s.turn(ctx, v); err != nil {
		return err
	}
	at, t := exportLocation{v.basePath, v.number}, s.targetOf(v)
	g, err := s.load(ctx, v, at, t)
	if err != nil {
		log.Error("model not loaded", "err", err)
		return err
	}
	stale := false
	for {
		err := s.keep(ctx, v, g, at, t, stale)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if refused := new(loadError); errors.As(err, &refused) && s.manager.stateOf(v) != stateAvailable {
			log.Error("model not loaded", "err", err)
			return err
		}
		gone := errors.Is(err, bus.ErrTrimmed)
		job := s.jobOf(t, g)
		stale = gone && !t.planned && len(s.newer(v, job, at)) == 0
		if stale {
			log.Warn("the deltas behind the export are gone, and there is no newer one: it is served as it was exported", "export", at.number, "err", err)
			continue
		}
		log.Warn("loading again", "export", at.number, "sync_seq", g.syncSeq, "because", err)
		if s.manager.answerOf(v) != g {
			v.unhold(g) // it had not caught up, so nobody has found it
		}
		if g, at, t, err = s.reload(ctx, v, job, at, t, gone); err != nil {
			return err
		}
	}
}

// reload reads v until that succeeds, or ctx ends: from where it lies or, where the deltas
// behind that are gone, from a newer export of the job.
func (s *keeper) reload(ctx context.Context, v *version, job string, at exportLocation, asked target, gone bool) (*servable, exportLocation, target, error) {
	name := "reload " + v.name
	defer s.Health.OK(name)
	pause := retry.New(time.Second, 30*time.Second)
	attempts := s.Health.Attempts(name)
	for {
		planned, exported := s.Plan.Changed(), s.Lineage.Changed()
		t := s.targetOf(v)
		places := s.newer(v, job, at)
		if !gone || t != asked {
			places = append([]exportLocation{at}, places...)
		}
		err := fmt.Errorf("the deltas behind export %d of job %q are gone, and no newer export is to be read here: wait for the job's next one, or load it", at.number, job)
		for _, p := range places {
			var g *servable
			if g, err = s.load(ctx, v, p, t); err == nil && p != at && g.job != job {
				err = fmt.Errorf("export %d in %s was made by job %q, not by %q", p.number, p.basePath, g.job, job)
				v.unhold(g)
			}
			if err == nil {
				return g, p, t, nil
			}
			if ctx.Err() != nil {
				return nil, at, t, ctx.Err()
			}
			s.Log.Error("model not loaded anew; what is there goes on being served", "model", v.name, "path", p.basePath, "export", p.number, "err", err)
		}
		attempts.Failed(err)
		wait := time.NewTimer(pause.Next())
		select {
		case <-planned:
		case <-exported:
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
		if ctx.Err() != nil {
			return nil, at, t, ctx.Err()
		}
	}
}

// load reads what lies at a place; it answers as the configured version all the same.
func (s *keeper) load(ctx context.Context, v *version, at exportLocation, t target) (g *servable, err error) {
	if s.turns != nil {
		if err := s.turns.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		defer s.turns.Release(1)
	}
	began := time.Now()
	defer func() {
		outcome := "loaded"
		if err != nil {
			outcome = "failed"
		}
		s.loads.WithLabelValues(outcome).Inc()
	}()
	if v.shard < 0 {
		if g, err = s.reads.loadEntry(ctx, v.model, at.basePath, at.number, t); err != nil {
			return nil, err
		}
		if s.Beside {
			if err = s.beside(ctx, g, v, at); err != nil {
				return nil, err
			}
		}
		// A layout moves its sub-models one by one, some never. Rows of any version
		// are those of its job, as long as they follow the same deltas.
		g.entry.Serve(v.number, !t.planned && s.jobOf(t, g) != "")
	} else if s.Beside {
		if g, err = s.loadShard(ctx, v, exportLocation{filepath.Clean(at.basePath), at.number}, v.shard); err != nil {
			return nil, err
		}
	} else {
		if g, err = s.reads.loadPS(ctx, v.model, at.basePath, v.shard, at.number, s.planned(v.model).GetModelDir(), t); err != nil {
			return nil, err
		}
		g.ps.Version = v.number
		s.sayDropped(v, g)
	}
	v.hold(g)
	// A shard that had nothing to say for long names an old sequence of its own; the
	// fact of the export knows how far the whole stream was when the cut was made. It
	// says nothing about the files of an attempt that was never recorded.
	s.Lineage.Read(func(st lineage.State) {
		if fact := recorded(st.Jobs[g.job], at.number, g); fact != nil {
			g.syncSeq = max(g.syncSeq, fact.GetSyncSeq())
		}
	})
	s.Log.Info("model read", "model", v.name, "version", v.number, "export", at.number, "job", g.job, "sync_seq", g.syncSeq, "took", time.Since(began))
	return g, nil
}

// sayDropped counts and tells of the rows that are left out because they are not finite:
// those of the export now, and those of deltas as they come.
func (s *keeper) sayDropped(v *version, g *servable) {
	for name, n := range g.dropped {
		s.Metrics.Dropped.Add(float64(n))
		s.Log.Error("rows of the export that are not finite are left out", "model", v.name, "table", name, "rows", n)
	}
	g.ps.Unfit = func(name string, n int, id int64) {
		s.Metrics.Dropped.Add(float64(n))
		s.Log.Error("rows of a delta that are not finite are left out", "model", v.name, "table", name, "rows", n, "first", id)
	}
}

// newer lists where an export of the job newer than at may be, the newest first: among the
// copies beside the configured one, which this host can surely read, or where the job's
// facts say.
func (s *keeper) newer(v *version, job string, at exportLocation) (places []exportLocation) {
	add := func(p exportLocation) {
		if p.number > at.number && !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	if versions, err := checkpoint.Versions(v.basePath); err == nil {
		for _, n := range versions {
			add(exportLocation{v.basePath, n})
		}
	}
	s.Lineage.Read(func(st lineage.State) {
		for _, e := range st.Jobs[job].Exports {
			add(exportLocation{filepath.Join(e.V.GetModelDir(), v.sub), e.V.GetVersion()})
		}
	})
	slices.SortStableFunc(places, func(a, b exportLocation) int { return cmp.Compare(b.number, a.number) })
	return places
}

var (
	errPlanChanged = errors.New("the plan has changed")
	errNewJob      = errors.New("the export's job has become known")
	errNewExport   = errors.New("there is a newer export")
)

// keep serves g until ctx ends, its deltas are trimmed, or something else is asked of this
// version. It makes v AVAILABLE once g has caught up; a stale one follows nothing, and is
// kept until there is a newer export.
func (s *keeper) keep(ctx context.Context, v *version, g *servable, at exportLocation, t target, stale bool) error {
	problem := "deltas of " + v.name
	defer s.Health.OK(problem)
	var parts sync.WaitGroup
	defer parts.Wait()
	lifetime := ctx // of v; ctx is g's
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	job := s.jobOf(t, g)
	following := make(chan error, 1)
	none := make(chan struct{}) // nothing to catch up with
	close(none)
	var caught <-chan struct{} = none
	switch {
	case stale:
		s.Health.Fail(problem, fmt.Errorf("those behind export %d of job %q are gone, and there is no newer export: it is served as it was exported", at.number, g.job))
	case job != "":
		if g.ps != nil {
			g.ps.Follow(true)
			defer g.ps.Follow(false)
		}
		f := s.feed(v, g, job)
		if err := s.retryBus(ctx, problem, f.FindEnd); err != nil {
			return err
		}
		caught = f.Caught()
		parts.Go(func() { following <- f.Follow(ctx) })
	}
	for {
		changed, exported := s.Plan.Changed(), s.Lineage.Changed()
		p := s.planned(v.model)
		switch {
		case p != nil && p.GetVersion() == v.number && s.targetOf(v) != t:
			return errPlanChanged
		case p == nil && s.jobOf(t, g) != job && !stale:
			return errNewJob
		case stale && len(s.newer(v, g.job, at)) > 0:
			return errNewExport
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-following:
			return cmp.Or(err, ctx.Err())
		case <-caught:
			caught = nil
			if g.entry != nil && s.WarmUp != nil {
				err := s.warmUp(ctx, g.entry, at)
				switch {
				case err != nil && (ctx.Err() != nil || s.manager.stateOf(v) != stateAvailable):
					return err
				case err != nil: // what is loaded anew is as good as what answers
					s.Log.Error("not warmed up", "model", v.name, "version", v.number, "err", err)
				}
			}
			s.manager.set(v, stateAvailable, g)
			for _, old := range v.handOver(g) {
				s.manager.letGo(lifetime, old)
			}
			if g.entry != nil && g.own == nil {
				parts.Go(func() { s.attend(ctx, v, g.entry) })
			}
			s.Log.Info("model available", "model", v.name, "version", v.number)
		case <-changed:
		case <-exported:
		}
	}
}

func (s *keeper) feed(v *version, g *servable, job string) *rows.Feed {
	f := &rows.Feed{
		BZID: s.BZID, Job: job, Dense: g.entry != nil, Shards: g.shards,
		Contained: g.contained, Epochs: g.epochs, Next: g.syncSeq + 1,
		Bus: s.Bus.Deltas(), Metrics: s.Metrics, Tracer: s.Tracer,
		Log: s.Log.With("model", v.name, "job", job), Health: s.Health, Problem: "deltas of " + v.name,
		Written: s.epochOf,
	}
	if g.job != job {
		f.Log.Warn("the export was made by another job; its sync sequence is taken all the same", "exported_by", g.job)
	}
	if g.entry != nil {
		f.Apply = func(d *delta.Delta, seq uint64, _ time.Time) error { return g.entry.Apply(d, seq) }
	} else {
		f.Apply = func(d *delta.Delta, seq uint64, at time.Time) error {
			return g.ps.Apply(d, seq, uint32(at.Unix()))
		}
	}
	f.Served = func(x rows.Flush) { s.Fresh.Add(v.model, v.sub, x) }
	return f
}

// attend asks for the rows of m every so often until ctx ends. Once every shard has them on
// one replica at least, v is settled, and older versions of the entry may go.
func (s *keeper) attend(ctx context.Context, v *version, m *entry.Model) {
	t := time.NewTicker(s.Poll)
	defer t.Stop()
	for {
		if m.Everywhere(ctx, s.Rows) {
			s.manager.settle(v)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// epochOf is the newest epoch in which a training shard was taken over; ok is false where
// the log knows nothing of that shard. The fact is older than the first delta of its
// epoch, so the view is asked once it holds all that is in the log.
func (s *keeper) epochOf(ctx context.Context, job string, k uint32) (epoch uint64, ok bool, err error) {
	err = s.retryBus(ctx, "control plane", func(ask context.Context) error {
		last, err := s.Bus.Log().Last(ask)
		if err != nil {
			return err
		}
		return s.Fleet.Wait(ask, last)
	})
	s.Fleet.Read(func(st fleet.State) {
		epoch = st.Shards[job][k].Ready.V.GetEpoch()
		ok = epoch > 0
	})
	return epoch, ok, err
}
