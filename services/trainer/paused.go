package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

var (
	// errPaused ends the work at a partition: what is under way there and not applied to any shard is
	// dropped, and is read again from where the shards stand once the job goes on.
	errPaused  = errors.New("the job is paused")
	errResumed = errors.New("the job is resumed")
)

const sayAgain = time.Second // where it could not be said that this trainer has paused

// healthPause is under what a pause shows: nobody is to forget it.
const healthPause = "pause"

func (s *Server) paused() bool { return s.job().Paused.Seq > 0 }

// until returns a context that ends with cause once the job is paused, or is not, as wanted.
func (s *Server) until(ctx context.Context, paused bool, cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			changed := s.lineage.Changed()
			if s.paused() == paused {
				cancel(cause)
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

// rest waits until the job goes on, or until a shard has lost some of what was learnt, which is learnt
// again in a pause, too, so that a checkpoint can be made.
func (l *learner) rest(ctx context.Context) {
	ctx, stop := l.s.shards.Follow(ctx)
	defer stop()
	ctx, end := l.s.until(ctx, false, errResumed)
	defer end()
	all, err := l.s.shards.Offsets(ctx)
	if err == nil && shards.PositionOf(all, l.partition).Level {
		<-ctx.Done()
	}
}

// underWay counts the learners that are at work.
type underWay struct {
	mu   sync.Mutex
	n    int
	done chan struct{} // closed when none is; nil while none is
}

func (u *underWay) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n++; u.n == 1 {
		u.done = make(chan struct{})
	}
}

func (u *underWay) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 {
		close(u.done)
		u.done = nil
	}
}

// over is closed once none is at work that is now; nil: none is.
func (u *underWay) over() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.done
}

// pauses shows pauses of the job, and says when nothing of this trainer is under way in one.
func (s *Server) pauses(ctx context.Context) {
	defer s.showPause(lineage.Pause{})
	for said := uint64(0); ; {
		changed := s.lineage.Changed()
		p := s.job().Paused
		s.showPause(p)
		if p.Seq > 0 && p.Seq != said && !slices.Contains(p.Resting, s.cfg.Name) { // where it does, an earlier start has said so
			if over := s.work.over(); over != nil {
				select {
				case <-over:
				case <-changed:
				case <-ctx.Done():
					return
				}
				continue
			}
			err := s.tell(ctx, &training.Event{Body: &training.Event_TrainerPaused{TrainerPaused: &training.TrainerPaused{Trainer: s.cfg.Name, Pause: p.Seq}}})
			if err != nil && ctx.Err() == nil {
				s.log.Warn("that the trainer has paused could not be said, trying again", "err", err)
				_ = retry.Sleep(ctx, sayAgain) // the loop looks at ctx
				continue
			}
			said = p.Seq
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// showPause tells metrics and health state of a pause, or of its end.
func (s *Server) showPause(p lineage.Pause) {
	if p.Seq == 0 {
		s.m.paused.Set(0)
		s.env.Health.OK(healthPause)
		return
	}
	s.m.paused.Set(1)
	s.env.Health.Fail(healthPause, fmt.Errorf("job %s learns nothing (%s): call trainer.%s.resume, or publish resumeRequested", s.cfg.Job, cmp.Or(p.Reason, "no reason was given"), s.cfg.Job))
}
