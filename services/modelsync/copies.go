package modelsync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	gosync "sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/sync"
	"github.com/monolith-go/monolith/internal/ckpt"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/services/internal/owner"
)

const (
	workers     = 4  // copies at a time
	longestWait = 30 // times Config.Retry
)

// outcome is what became of one attempt.
type outcome struct {
	target target
	err    error
}

// failure is a target that waits for its next attempt.
type failure struct {
	wait time.Duration
	next time.Time
	said string // reason of the newest TargetFailed
}

// keepCopies brings to this host whatever a plan names and is not here, and removes what
// none names any more. It owns its workers and returns after the last of them.
func (s *Server) keepCopies(ctx context.Context) error {
	var running gosync.WaitGroup
	defer running.Wait()
	done := make(chan outcome, workers)
	busy := map[string]bool{}         // being copied
	here := map[string]bool{}         // seen whole by this process
	failed := map[string]*failure{}   // waiting
	retry := time.NewTimer(time.Hour) // for the earliest of failed
	defer retry.Stop()
	for {
		changed := s.plan.Changed()
		var targets []target
		s.plan.Read(func(p plan.State) { targets = wanted(p) })
		named := map[string]bool{}
		now := time.Now()
		soonest := now.Add(time.Hour)
		for _, t := range targets {
			k := t.key(s.cfg.Host)
			named[k] = true
			if busy[k] || here[k] {
				continue
			}
			if f := failed[k]; f != nil && now.Before(f.next) {
				if f.next.Before(soonest) {
					soonest = f.next
				}
				continue
			}
			if len(busy) == workers {
				continue // the next outcome brings us back
			}
			busy[k] = true
			running.Go(func() { done <- outcome{t, s.bring(ctx, t)} })
		}
		for k := range failed {
			if !named[k] {
				delete(failed, k)
			}
		}
		for k := range here {
			if !named[k] {
				delete(here, k) // wanted again, it is looked at again
			}
		}
		s.retain(targets, here)
		retry.Reset(time.Until(soonest))
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-retry.C:
		case o := <-done:
			k := o.target.key(s.cfg.Host)
			delete(busy, k)
			if o.err == nil {
				here[k] = true
				delete(failed, k)
				continue
			}
			if failed[k] == nil {
				failed[k] = &failure{}
			}
			s.fail(ctx, o, failed[k])
		}
	}
}

// bring makes sure that t lies here whole and that a fact says so.
func (s *Server) bring(ctx context.Context, t target) error {
	if err := t.check(s.cfg.Dir); err != nil {
		return err
	}
	dst := t.under(s.cfg.Dir)
	found := whole(ctx, dst)
	var size uint64
	var err error
	if found {
		var n int64
		n, err = ckpt.DirSize(dst)
		size = uint64(n)
	} else {
		size, err = copyModel(ctx, t.source, dst)
	}
	if err != nil {
		return err
	}
	subject := events.Join(s.env.BZID, "sync", t.aggregate(s.cfg.Host))
	cause := s.causeOf(ctx, t)
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
			c := l.Copies[t.key(s.cfg.Host)].V
			said = c.GetPath() == dst && c.GetBytes() == size
		})
		if found && said {
			return nil, nil
		}
		return []bus.Draft{{Subject: subject, Expect: last, Header: cause, Event: &sync.Event{Body: &sync.Event_ModelCopied{
			ModelCopied: &sync.ModelCopied{ModelName: t.model, SubModel: t.sub, Version: t.version, Host: s.cfg.Host, Path: dst, Bytes: size}}}}}, nil
	})
	if err != nil {
		return errUnsaid{err}
	}
	if found {
		s.copies.WithLabelValues("found").Inc()
	} else {
		s.copies.WithLabelValues("copied").Inc()
		s.bytes.Add(float64(size))
	}
	s.env.Log.Info("sub-model is here", "model", t.model, "sub_model", t.sub, "version", t.version, "path", dst, "bytes", size, "facts", len(seqs))
	return nil
}

// errUnsaid means that the copy is fine and the log did not answer: nothing about the
// target, so no TargetFailed.
type errUnsaid struct{ error }

func (e errUnsaid) Unwrap() error { return e.error }

// fail plans the next attempt, and says why the last one failed unless that was said.
func (s *Server) fail(ctx context.Context, o outcome, f *failure) {
	if ctx.Err() != nil {
		return
	}
	s.copies.WithLabelValues("failed").Inc()
	f.wait = min(max(2*f.wait, s.cfg.Retry), longestWait*s.cfg.Retry)
	f.next = time.Now().Add(f.wait)
	s.env.Log.Warn("sub-model is not here yet", "model", o.target.model, "sub_model", o.target.sub,
		"version", o.target.version, "err", o.err, "again_in", f.wait)
	reason := o.err.Error()
	if errors.As(o.err, new(errUnsaid)) || reason == f.said {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, owner.Deadline)
	defer cancel()
	_, _, err := s.store.Append(ctx, func() ([]bus.Draft, error) {
		return []bus.Draft{{
			Subject: events.Join(s.env.BZID, "sync", o.target.aggregate(s.cfg.Host)), Expect: bus.Any, Header: s.causeOf(ctx, o.target),
			Event: &sync.Event{Body: &sync.Event_TargetFailed{TargetFailed: &sync.TargetFailed{
				ModelName: o.target.model, SubModel: o.target.sub, Target: s.cfg.Host, Reason: reason}}}}}, nil
	})
	if err != nil {
		s.env.Log.Warn("failed copy not recorded yet", "err", err)
		return
	}
	f.said = reason
}

// causeOf is the header of a fact that follows from the plan behind t; without the plan
// it is empty, which breaks nothing.
func (s *Server) causeOf(ctx context.Context, t target) events.Header {
	r, err := s.env.Bus.Log().Get(ctx, t.seq)
	if err != nil {
		return events.Header{}
	}
	h := events.Header{Causation: r.Header.ID, Correlation: r.Header.Correlation, Traceparent: r.Header.Traceparent}
	if h.Correlation == "" {
		h.Correlation = r.Header.ID
	}
	return h
}

// retain removes versions that may go, of every sub-model whose wanted versions are all
// here. A version that cannot be removed is met again in the next round.
func (s *Server) retain(targets []target, here map[string]bool) {
	named := map[string]map[int64]bool{} // by <model>/<sub-model>
	waiting := map[string]bool{}
	for _, t := range targets {
		place := filepath.Join(t.model, t.sub)
		if named[place] == nil {
			named[place] = map[int64]bool{}
		}
		named[place][t.version] = true
		waiting[place] = waiting[place] || !here[t.key(s.cfg.Host)]
	}
	places, err := filepath.Glob(filepath.Join(s.cfg.Dir, "*", "*"))
	if err != nil {
		return // only for a malformed pattern
	}
	for _, dir := range places {
		place, err := filepath.Rel(s.cfg.Dir, dir)
		if info, statErr := os.Stat(dir); err != nil || statErr != nil || !info.IsDir() || waiting[place] {
			continue
		}
		versions, err := ckpt.Versions(dir)
		if err != nil {
			s.env.Log.Warn("copies not listed", "dir", dir, "err", err)
			continue
		}
		for _, v := range obsolete(versions, named[place]) {
			gone := filepath.Join(dir, fmt.Sprint(v))
			if err := remove(gone); err != nil {
				s.env.Log.Warn("old copy not removed", "dir", gone, "err", err)
				continue
			}
			s.removed.Inc()
			s.env.Log.Info("old copy removed", "dir", gone)
		}
	}
}
