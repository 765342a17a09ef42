package modelsync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/services/internal/modelcopy"
	"github.com/monolith-go/monolith/services/internal/role"
)

const (
	workers     = 4  // copies at a time
	longestWait = 30 // times Config.Retry
	// tellAfter is how many attempts fail before the role says that it has a problem.
	tellAfter = 3
	// copyProblem names that problem.
	copyProblem = "copies"
	// roundEvery is the least time between two looks at the plans.
	roundEvery = 50 * time.Millisecond
	// listEvery is how often the folder of copies is listed though nothing has changed.
	listEvery = time.Minute
)

// outcome is what became of one attempt.
type outcome struct {
	target target
	copied copied
	err    error
}

// failure is a target that waits for its next attempt.
type failure struct {
	pauses *retry.Backoff
	tries  int
	next   time.Time
	last   error
	said   string // reason of the newest TargetFailed
}

// keeper brings to this host what plans put on its containers and is not here, and
// removes what none names any more. All of it belongs to the goroutine of run.
type keeper struct {
	s       *Server
	dir     *os.Root // folder of copies
	done    chan outcome
	busy    map[target]bool      // being copied
	here    map[target]bool      // seen since the plan asked for them
	whole   map[string]copied    // what was seen at a place, be it wanted or not
	failed  map[target]*failure  // waiting
	unnamed map[string]time.Time // places that no plan names, since when

	targets []target
	list    time.Time // when the folder is looked at again, though nothing has changed
}

// run owns its workers and returns after the last of them.
func (k *keeper) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	next := time.NewTimer(time.Hour)
	defer next.Stop()
	changed := true // something that retain depends on
	for {
		planned, members := k.s.plan.Changed(), k.s.fleet.Changed()
		targets := k.wanted()
		if !slices.Equal(targets, k.targets) {
			k.targets, changed = targets, true
		}
		began := time.Now()
		k.s.rounds.Inc()
		soonest := k.start(ctx, &running)
		if changed || !began.Before(k.list) {
			changed, k.list = false, k.retain(began)
		}
		if k.list.Before(soonest) {
			soonest = k.list
		}
		k.tell()
		next.Reset(time.Until(soonest))
		select {
		case <-ctx.Done():
			return nil
		case <-planned:
		case <-members:
		case <-next.C:
		case o := <-k.done:
			changed = true
			delete(k.busy, o.target)
			k.take(ctx, o)
			continue
		}
		if retry.Sleep(ctx, time.Until(began.Add(roundEvery))) != nil {
			return nil
		}
	}
}

// wanted reads the views.
func (k *keeper) wanted() (targets []target) {
	k.s.plan.Read(func(p plan.State) {
		k.s.fleet.Read(func(f fleet.State) {
			targets = wanted(p, func(id string) bool {
				// Of a container that is unknown yet, or does not say it, the host may be this one.
				host := f.Containers[id].Container.V.GetHost()
				return host == "" || host == k.s.cfg.Host
			})
		})
	})
	return targets
}

// start begins whatever copies are due, and returns when the next one will be.
func (k *keeper) start(ctx context.Context, running *sync.WaitGroup) (soonest time.Time) {
	now := time.Now()
	soonest = now.Add(time.Hour)
	for _, t := range k.targets {
		if k.busy[t] || k.here[t] || len(k.busy) == workers { // the next outcome brings us back
			continue
		}
		if f := k.failed[t]; f != nil && now.Before(f.next) {
			if f.next.Before(soonest) {
				soonest = f.next
			}
			continue
		}
		k.busy[t] = true
		var seen *copied
		if c, ok := k.whole[t.place()]; ok {
			seen = &c
		}
		running.Go(func() {
			c, err := k.s.bring(ctx, k.dir, t, seen)
			k.done <- outcome{t, c, err}
		})
	}
	for t := range k.failed {
		if !slices.Contains(k.targets, t) {
			delete(k.failed, t)
		}
	}
	for t := range k.here {
		if !slices.Contains(k.targets, t) {
			delete(k.here, t) // wanted again, it is looked at again
		}
	}
	return soonest
}

// take notes an outcome.
func (k *keeper) take(ctx context.Context, o outcome) {
	delete(k.whole, o.target.place())
	if o.err == nil {
		k.here[o.target], k.whole[o.target.place()] = true, o.copied
		delete(k.failed, o.target)
		return
	}
	if ctx.Err() != nil {
		return
	}
	f := k.failed[o.target]
	if f == nil {
		f = &failure{pauses: retry.New(k.s.cfg.Retry, longestWait*k.s.cfg.Retry)}
		k.failed[o.target] = f
	}
	wait := f.pauses.Next()
	f.tries, f.last, f.next = f.tries+1, o.err, time.Now().Add(wait)
	k.s.copies.WithLabelValues("failed").Inc()
	k.s.env.Log.Warn("sub-model is not here yet", "model", o.target.model, "sub_model", o.target.sub,
		"version", o.target.version, "source", o.target.source, "err", o.err, "again_in", wait)
	k.s.fail(ctx, o, f)
}

// tell reports copies that fail again and again.
func (k *keeper) tell() {
	var worst error
	n := 0
	for _, t := range k.targets {
		if f := k.failed[t]; f != nil && f.tries >= tellAfter {
			if n++; worst == nil {
				worst = fmt.Errorf("%s version %d: %w", t.subModel(), t.version, f.last)
			}
		}
	}
	switch {
	case worst == nil:
		k.s.env.Health.OK(copyProblem)
	case n > 1:
		k.s.env.Health.Fail(copyProblem, fmt.Errorf("%w (and %d more)", worst, n-1))
	default:
		k.s.env.Health.Fail(copyProblem, worst)
	}
}

// retain removes copies that no plan names: at once, but for the newest of each
// sub-model, which a server may still be reading and goes after Config.Grace. Of a
// sub-model that has not all of its wanted versions here, everything stays. It returns
// when to look again, which is also when one that could not be removed is tried again.
func (k *keeper) retain(now time.Time) (next time.Time) {
	next = now.Add(listEvery)
	named, waiting := map[string]bool{}, map[string]bool{}
	for _, t := range k.targets {
		named[t.place()] = true
		waiting[t.subModel()] = waiting[t.subModel()] || !k.here[t]
	}
	copies, err := list(k.dir)
	if err != nil {
		k.s.env.Log.Warn("copies not listed", "dir", k.s.cfg.Dir, "err", err)
	}
	since := map[string]time.Time{}
	newest := map[string]stored{} // unnamed, by sub-model
	unnamed := func(c stored) bool { return !named[c.place()] && !waiting[c.model+"/"+c.sub] }
	for _, c := range copies {
		if !unnamed(c) {
			continue
		}
		since[c.place()] = now
		if at, ok := k.unnamed[c.place()]; ok {
			since[c.place()] = at
		}
		if n, ok := newest[c.model+"/"+c.sub]; !ok || c.version > n.version {
			newest[c.model+"/"+c.sub] = c
		}
	}
	k.unnamed = since
	for _, c := range copies {
		if !unnamed(c) {
			continue
		}
		if due := since[c.place()].Add(k.s.cfg.Grace); c == newest[c.model+"/"+c.sub] && now.Before(due) {
			if due.Before(next) {
				next = due
			}
			continue
		}
		if err := modelcopy.Remove(k.dir, c.place()); err != nil {
			k.s.env.Log.Warn("old copy not removed", "dir", filepath.Join(k.s.cfg.Dir, c.place()), "err", err)
			continue
		}
		delete(k.unnamed, c.place())
		delete(k.whole, c.place())
		k.s.removed.Inc()
		k.s.env.Log.Info("old copy removed", "dir", filepath.Join(k.s.cfg.Dir, c.place()))
	}
	k.dropParts(named)
	if len(k.busy) == 0 {
		prune(k.dir)
	}
	return next
}

// dropParts removes what was fetched in part for a place that no plan names any more.
func (k *keeper) dropParts(named map[string]bool) {
	found, err := parts(k.dir)
	if err != nil {
		return // only for a malformed pattern
	}
	for _, path := range found {
		version, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), part), "-")
		if place := filepath.Join(filepath.Dir(path), version); named[place] || k.fetching(place) {
			continue
		}
		if err := k.dir.RemoveAll(path); err != nil {
			k.s.env.Log.Warn("what was fetched in part not removed", "dir", filepath.Join(k.s.cfg.Dir, path), "err", err)
		}
	}
}

// fetching says whether a copy is being made at place.
func (k *keeper) fetching(place string) bool {
	for t := range k.busy {
		if t.place() == place {
			return true
		}
	}
	return false
}

// bring makes sure that t lies here whole and that a fact says so. seen is what lay at its
// place before, nil where this process has not looked yet.
func (s *Server) bring(ctx context.Context, dir *os.Root, t target, seen *copied) (c copied, err error) {
	if err := t.check(s.cfg.Dir); err != nil {
		return c, err
	}
	began := time.Now()
	c, how, err := s.whole(ctx, dir, t, seen)
	if err != nil {
		return c, err
	}
	there := how == lay
	fact := &transfer.ModelCopied{ModelName: t.model, SubModel: t.sub, Version: t.version, Host: s.cfg.Host,
		Path: filepath.Join(s.cfg.Dir, t.place()), Bytes: c.size, Source: t.source, Export: c.export}
	subject := transfer.Subject(s.env.BZID, t.aggregate(s.cfg.Host))
	cause, wanted := s.causeOf(ctx, t)
	said := false
	_, seqs, err := s.store.Append(ctx, func() ([]bus.Draft, error) {
		last, err := s.env.Bus.Log().LastOf(ctx, subject)
		if err != nil {
			return nil, err
		}
		if err := s.lineage.Wait(ctx, last); err != nil {
			return nil, err
		}
		s.lineage.Read(func(l lineage.State) {
			said = proto.Equal(l.Copies[t.key(s.cfg.Host)].V, fact)
		})
		if there && said {
			return nil, nil
		}
		return []bus.Draft{{Subject: subject, Expect: last, Header: cause, Event: &transfer.Event{Body: &transfer.Event_ModelCopied{ModelCopied: fact}}}}, nil
	})
	if err != nil {
		return c, errUnsaid{err}
	}
	s.copies.WithLabelValues(string(how)).Inc()
	if !there {
		s.bytes.Add(float64(c.size))
		s.took.Observe(time.Since(began).Seconds())
		if !wanted.IsZero() {
			s.delay.Observe(max(0, time.Since(wanted).Seconds()))
		}
	}
	s.env.Log.Info("sub-model is here", "model", t.model, "sub_model", t.sub, "version", t.version, "source", t.source, "path", fact.Path, "bytes", c.size, "facts", len(seqs))
	return c, nil
}

// errUnsaid means that the copy is fine and the log did not answer: nothing about the
// target, so no TargetFailed.
type errUnsaid struct{ error }

func (e errUnsaid) Unwrap() error { return e.error }

// fail says why an attempt failed, unless that was said.
func (s *Server) fail(ctx context.Context, o outcome, f *failure) {
	reason := strings.ToValidUTF8(o.err.Error(), "?") // files may have any name
	if errors.As(o.err, new(errUnsaid)) || reason == f.said {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, role.Deadline)
	defer cancel()
	cause, _ := s.causeOf(ctx, o.target)
	_, _, err := s.store.Append(ctx, func() ([]bus.Draft, error) {
		return []bus.Draft{{
			Subject: transfer.Subject(s.env.BZID, o.target.aggregate(s.cfg.Host)), Expect: bus.Any, Header: cause,
			Event: &transfer.Event{Body: &transfer.Event_TargetFailed{TargetFailed: &transfer.TargetFailed{
				ModelName: o.target.model, SubModel: o.target.sub, Target: s.cfg.Host, Reason: reason}}}}}, nil
	})
	if err != nil {
		s.env.Log.Warn("failed copy not recorded yet", "err", err)
		return
	}
	f.said = reason
}

// causeOf is the header of a fact that follows from the plan behind t, and when that was made;
// without the plan both are empty, which breaks nothing.
func (s *Server) causeOf(ctx context.Context, t target) (events.Header, time.Time) {
	r, err := s.env.Bus.Log().Get(ctx, t.seq)
	if err != nil {
		return events.Header{}, time.Time{}
	}
	h := events.Header{Causation: r.Header.ID, Correlation: r.Header.Correlation, Traceparent: r.Header.Traceparent}
	if h.Correlation == "" {
		h.Correlation = r.Header.ID
	}
	return h, r.Time
}
