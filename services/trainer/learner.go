package trainer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/trainer/feed"
	"github.com/monolith-go/monolith/services/trainer/internal/attempt"
	"github.com/monolith-go/monolith/services/trainer/shards"
	"github.com/monolith-go/monolith/services/trainer/source"
)

// learner learns one partition while its lease is held.
type learner struct {
	s         *Server
	partition int32
	epoch     uint64
	reader    source.Partition
	ring      ring
	turns     feed.Turns
	lag       feed.Lag
	said      *training.PartitionTaken // the last of this lease; nil: none yet
	steps     uint64

	odd      int  // records in a row that could not be learnt by themselves
	diverged bool // healthFailed was appended, and nothing was learnt since
	paused   bool // the job was, when the attempt under way began: no new records are taken
}

// run learns until soft ends. hard, which ends later or with the lease, covers what must
// not be broken off half-way: a batch that some shard may have applied.
func (l *learner) run(soft, hard context.Context) {
	defer l.reader.Close()
	defer l.s.env.Health.OK(l.named("learning"))
	defer l.s.env.Health.OK(l.named("reading"))
	defer l.s.env.Health.OK(healthLetters)
	defer l.measure(soft)()
	if !l.s.cfg.Deterministic { // where turns are taken only one partition computes at a time
		defer l.s.env.Lanes.Expect(1)()
	}
	log := l.s.log.With("partition", l.partition, "epoch", l.epoch)
	t := attempt.New()
	for soft.Err() == nil {
		steps := l.steps
		err := l.runOnce(soft, hard)
		if soft.Err() != nil {
			return
		}
		if l.steps > steps { // some of it went well
			t.Well()
		}
		wait, tell := t.Failed(err, errors.Is(err, errDiverged))
		switch code := attempt.Refusal(err); {
		case errors.Is(err, errDone):
			log.Info("the partition is learnt to its end")
			l.awaitWork(soft)
			t.Well()
			continue
		case errors.Is(err, errPaused):
			l.rest(soft)
			t.Well()
			continue
		case errors.Is(err, shards.ErrMoved):
		case code == rowwire.Fenced:
			log.Warn("another trainer has the partition, giving it up", "err", err)
			return
		case attempt.Unsettles(code):
			log.Info("taking the partition up again where the shards stand", "err", err)
		case attempt.Lost(err):
			log.Error("the log is not the one that was learnt from: nothing is skipped, the partition stands still", "err", err)
			l.reading(err)
		default:
			log.Error("the partition cannot be learnt, trying again", "err", err)
		}
		if tell {
			l.s.env.Health.Fail(l.named("learning"), err)
		}
		l.s.m.rewinds.Inc()
		if wait.Wait(soft) != nil {
			return
		}
	}
}

// measure shows how many records are left to learn, as long as the partition is this trainer's.
func (l *learner) measure(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	j := l.s.job()
	at := j.Started.V.GetBegins()[l.partition] // until the shards say where they stand
	if n := len(j.Checkpoints); n > 0 {
		at = j.Checkpoints[n-1].V.GetOffsets()[l.partition]
	}
	l.lag.Begin(at, at)
	shown := []string{l.s.cfg.Job, strconv.Itoa(int(l.partition))}
	var done sync.WaitGroup
	done.Go(func() {
		p := l.s.source.Open(j.Started.V.GetTopicId(), l.partition, func(error) {}) // a reader is one goroutine's
		defer p.Close()
		l.lag.Measure(ctx, p.Bounds, l.end(), l.s.lagEvery, func(n int64) {
			l.s.lags.Store(l.partition, n)
			l.s.m.lag.WithLabelValues(shown...).Set(float64(n))
		})
	})
	return func() {
		cancel()
		done.Wait()
		l.s.lags.Delete(l.partition)
		l.s.m.lag.DeleteLabelValues(shown...) // whoever takes it next shows it
	}
}

// named is the partition's name in the health state.
func (l *learner) named(what string) string {
	return fmt.Sprintf("%s %s/%d", what, l.s.cfg.Topic, l.partition)
}

// reading tells the health state what keeps the partition from being read.
func (l *learner) reading(err error) {
	if err == nil {
		l.s.env.Health.OK(l.named("reading"))
		return
	}
	l.s.env.Health.Fail(l.named("reading"), err)
}

// runOnce finds out where the shards stand and learns from there on.
func (l *learner) runOnce(soft, hard context.Context) error {
	l.s.work.begin()
	defer l.s.work.end()
	if err := l.s.shards.Wait(soft); err != nil {
		return err
	}
	// From here on a shard that comes back as another ends the work, so that what it
	// lost is learnt again even when nothing new arrives.
	followed, stop := l.s.shards.Follow(soft)
	defer stop()
	if l.paused = l.s.paused(); !l.paused {
		running, end := l.s.until(followed, true, errPaused)
		defer end()
		followed = running
	}
	if l.s.cfg.Deterministic {
		// A batch that was under way belongs to a timeline that a shard has left: it
		// may wait there for a turn that never comes again.
		var broken context.CancelFunc
		hard, broken = context.WithCancel(hard)
		defer broken()
		defer context.AfterFunc(followed, func() {
			if errors.Is(context.Cause(followed), shards.ErrMoved) {
				broken()
			}
		})()
	}
	err := l.resume(followed, hard)
	if why := context.Cause(followed); err != nil && (errors.Is(why, shards.ErrMoved) || errors.Is(why, errPaused)) && attempt.Refusal(err) != rowwire.Fenced {
		return why
	}
	return err
}

// awaitWork waits at the end of a bounded partition until a shard has lost some of it.
func (l *learner) awaitWork(ctx context.Context) {
	followed, stop := l.s.shards.Follow(ctx)
	defer stop()
	all, err := l.s.shards.Offsets(followed)
	if err == nil && shards.PositionOf(all, l.partition).From >= l.end() {
		<-followed.Done()
	}
}

// resume learns on resume where the shards stand now.
func (l *learner) resume(soft, hard context.Context) error {
	all, err := l.s.shards.Offsets(soft)
	if err != nil {
		return err
	}
	pos := shards.PositionOf(all, l.partition)
	if l.paused && pos.Level {
		return errPaused
	}
	was, err := l.lastTaken(soft) // behind the offsets: whoever learnt up to them has said so before
	if err != nil {
		return err
	}
	wrong := l.checkLog(soft, pos, leaderOf(was))
	leader := l.reader.LeaderEpoch()
	if wrong != nil {
		leader = leaderOf(was) // the next one must find it as well
	}
	if err := l.takes(soft, pos.From, leader); err != nil {
		return err
	}
	if wrong != nil {
		return wrong
	}
	return l.learnFrom(soft, hard, pos)
}
