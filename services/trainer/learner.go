package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// learner learns one partition while its lease is held.
type learner struct {
	s         *Server
	partition int32
	epoch     uint64
	reader    *kafka.Reader
	ring      ring
	turns     turns
	told      bool // partitionTaken was appended
	steps     uint64

	odd      int  // records in a row that could not be learnt by themselves
	diverged bool // healthFailed was appended, and nothing was learnt since
}

// run learns until soft ends. hard, which ends later or with the lease, covers what must
// not be broken off half-way: a batch that some shard may have applied.
func (l *learner) run(soft, hard context.Context) {
	defer l.reader.Close()
	defer l.s.env.Health.OK(l.named("learning"))
	defer l.s.env.Health.OK(l.named("reading"))
	defer l.s.env.Health.OK(healthLetters)
	if !l.s.cfg.Deterministic { // where turns are taken only one partition computes at a time
		defer l.s.env.Lanes.Expect(1)()
	}
	log := l.s.log.With("partition", l.partition, "epoch", l.epoch)
	t := newTries()
	for soft.Err() == nil {
		steps := l.steps
		err := l.runOnce(soft, hard)
		if soft.Err() != nil {
			return
		}
		if l.steps > steps { // some of it went well
			t.well()
		}
		wait, tell := t.failed(err)
		switch code := refusal(err); {
		case errors.Is(err, errDone):
			log.Info("the partition is learnt to its end")
			l.awaitWork(soft)
			t.well()
			continue
		case errors.Is(err, errMoved):
		case code == rowwire.Fenced:
			log.Warn("another trainer has the partition, giving it up", "err", err)
			return
		case unsettles(code):
			log.Info("taking the partition up again where the shards stand", "err", err)
		case lost(err):
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
	if err := l.s.shards.wait(soft); err != nil {
		return err
	}
	// From here on a shard that comes back as another ends the work, so that what it
	// lost is learnt again even when nothing new arrives.
	followed, stop := l.s.shards.follow(soft)
	defer stop()
	if l.s.cfg.Deterministic {
		// A batch that was under way belongs to a timeline that a shard has left: it
		// may wait there for a turn that never comes again.
		var broken context.CancelFunc
		hard, broken = context.WithCancel(hard)
		defer broken()
		defer context.AfterFunc(followed, func() {
			if errors.Is(context.Cause(followed), errMoved) {
				broken()
			}
		})()
	}
	err := l.resume(followed, hard)
	if err != nil && errors.Is(context.Cause(followed), errMoved) && refusal(err) != rowwire.Fenced {
		return errMoved
	}
	return err
}

// awaitWork waits at the end of a bounded partition until a shard has lost some of it.
func (l *learner) awaitWork(ctx context.Context) {
	followed, stop := l.s.shards.follow(ctx)
	defer stop()
	all, err := l.s.shards.offsets(followed)
	if err == nil && positionOf(all, l.partition).from >= l.end() {
		<-followed.Done()
	}
}

// resume learns on resume where the shards stand now.
func (l *learner) resume(soft, hard context.Context) error {
	all, err := l.s.shards.offsets(soft)
	if err != nil {
		return err
	}
	pos := positionOf(all, l.partition)
	if !l.told {
		if err := l.s.tell(soft, &training.Event{Body: &training.Event_PartitionTaken{PartitionTaken: &training.PartitionTaken{
			Partition: l.partition, Epoch: l.epoch, Trainer: l.s.cfg.Name, From: pos.from,
		}}}); err != nil {
			return fmt.Errorf("say that the partition is taken: %w", err)
		}
		l.told = true
	}
	if err := l.checkLog(soft, pos.from); err != nil {
		return err
	}
	return l.learnFrom(soft, hard, pos)
}
