package trainer

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/trainer/internal/chief"
	"github.com/monolith-go/monolith/services/trainer/requests"
	"github.com/monolith-go/monolith/services/trainer/shards"
	"github.com/monolith-go/monolith/services/trainer/step"
	"github.com/monolith-go/monolith/services/trainer/warm"
)

// Names of what a trainer reports to its health state.
const (
	healthModel   = "model"
	healthJob     = "job"
	healthLetters = "dead letters"
)

// job is the job as the log has it.
func (s *Server) job() (j lineage.Job) {
	s.lineage.Read(func(st lineage.State) { j = st.Jobs[s.cfg.Job] })
	return j
}

// prepare waits for a declaration of the model that this trainer can learn.
func (s *Server) prepare(ctx context.Context) error {
	role.Declared(ctx, s.catalog, s.cfg.Model, s.log, func(spec *model.ModelSpec) (err error) {
		if s.engine, err = step.New(spec, s.cfg.Shards, s.cfg.Batch); err != nil {
			err = fmt.Errorf("model %s: %w", s.cfg.Model, err)
			s.env.Health.Fail(healthModel, err)
			return err
		}
		s.engine.Latest = s.latestRecord
		s.dense = shards.NewDense(s.shards, s.engine)
		s.env.Health.OK(healthModel)
		s.engine.Input = s.cfg.input()
		close(s.prepared)
		return nil
	})
	return nil
}

var (
	// errOver is a job that has ended, and that this trainer is not to wait for.
	errOver = errors.New("the job is over")
	// errSoon is a job that its chief has yet to start.
	errSoon = errors.New("waiting for the job's chief to start it")
)

// train takes part in the job while it runs.
func (s *Server) train(soft, hard context.Context) error {
	if err := s.join(soft); errors.Is(err, warm.ErrTimeout) {
		return err
	} else if err != nil {
		return nil // ctx ended, or the job did
	}
	if s.cfg.Deterministic {
		defer s.env.Lanes.Expect(1)()
	}
	g, soft := errgroup.WithContext(soft)
	soft, cancel := context.WithCancel(soft)
	defer cancel()
	g.Go(func() error { return s.share(soft, hard) })
	g.Go(func() error { s.pauses(soft); return nil })
	g.Go(func() error {
		defer cancel()
		return s.untilStopped(soft)
	})
	return g.Wait()
}

// join returns nil once the job runs as this trainer was started for. It waits for that
// rather than end: a process that starts again would find the same.
func (s *Server) join(ctx context.Context) error {
	defer s.env.Health.OK(healthJob)
	late, stop := s.cfg.Restore.Late()
	defer stop()
	for last := (role.LastLogged{}); ; {
		changed, asked, prepared := s.lineage.Changed(), s.requests.Changed(), s.preparing()
		err := s.joins()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errOver):
			s.log.Info("the job is over")
			return err
		case errors.Is(err, chief.ErrIdle), errors.Is(err, errSoon):
			s.env.Health.OK(healthJob)
		default:
			s.env.Health.Fail(healthJob, err)
		}
		if last.Changed(err.Error()) {
			s.log.Warn("not training", "reason", err)
		}
		select {
		case <-changed:
		case <-asked:
		case <-prepared:
		case <-late:
			if late = nil; s.job().Started.V == nil {
				return s.cfg.Restore.TooLate(s.cfg.Job)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// preparing is closed when the model is ready, and nil, which waits for ever, after that.
// Like Changed it is to be asked before what it announces is looked at.
func (s *Server) preparing() <-chan struct{} {
	if s.isPrepared() {
		return nil
	}
	return s.prepared
}

func (s *Server) isPrepared() bool {
	select {
	case <-s.prepared:
		return true
	default:
		return false
	}
}

// joins says why this trainer cannot take part in the job as it is now.
func (s *Server) joins() error {
	j := s.job()
	b := j.Started.V
	switch {
	case j.Stopped && j.StoppedSeq > s.begin, j.Stopped && s.cfg.StopAtEnd && s.startable():
		return errOver
	case j.Stopped:
		return chief.ErrIdle
	case b == nil, !s.isPrepared():
		return errSoon
	}
	if err := s.differs(b); err != nil {
		return err
	}
	return s.endless(b)
}

// endless says why a trainer that is to stop at the job's end finds none. The chief of a
// running job fixes it, if it was started for one too; in deterministic mode the order of
// all that was learnt would have been another.
func (s *Server) endless(b *training.JobStarted) error {
	switch {
	case !s.cfg.StopAtEnd || len(b.GetEnds()) > 0:
		return nil
	case s.cfg.Deterministic:
		return fmt.Errorf("the deterministic job %s was started without an end, which would change its order: stop it and start it again with --stop-at-end, or start this trainer without", s.cfg.Job)
	}
	return fmt.Errorf("job %s has no end yet: its chief must be started with --stop-at-end too", s.cfg.Job)
}

// startable says that the job is stopped, by what was folded of its requests, and that
// nobody has asked for its start.
func (s *Server) startable() (yes bool) {
	s.requests.Read(func(r requests.State) { yes = r.Stopped && r.Start == nil })
	return yes
}
