package ps

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/ps/publish"
)

const (
	busTimeout = 5 * time.Second // of one call
	maxBackoff = 2 * time.Second
)

// target says which checkpoint and generation a shard goes to.
type target struct {
	checkpoint int64  // anyCheckpoint: the newest
	generation uint64 // 0: decide when the shard is taken
	why        string
}

// takeOver puts the shard onto a timeline and makes this process its one writer:
//
//	restore, mark what was published since as touched | nothing is visible yet
//	append Ready under the expected sequence          | of two processes, one gets the epoch
//	publish a takeover guarded by what was read       | the predecessor's next publish fails
//	answer                                            |
//
// A crash on any of these lines leaves a shard that the next process takes the same way.
func (s *Server) takeOver(ctx context.Context, a target) error {
	s.st.Suspend(rowwire.Errorf(rowwire.Unavailable, "shard %d of job %q is being restored (%s); try again", s.cfg.Shard, s.cfg.Job, a.why))
	s.live = false
	// Whatever the fleet view tells of, the lineage view must know too.
	if err := s.lineage.Wait(ctx, s.fleet.Seq()); err != nil {
		return err
	}
	j := s.job()
	s.restored = j.Restored
	saved, err := s.restore(ctx, j, a.checkpoint)
	if err != nil {
		return err
	}
	s.resharded = saved != nil && int(saved.Shards) != s.cfg.Shards
	next := uint64(1)
	if err := s.reaches(ctx, j); err != nil {
		return err
	}
	if saved != nil {
		next = saved.SyncSeq + 1
	}
	next, err = patiently(ctx, s, "read own deltas", func(ctx context.Context) (uint64, error) {
		next, _, err := s.reread(ctx, next, s.restored.SyncSeq)
		return next, err
	})
	if err != nil {
		return err
	}
	ready, seq, err := s.take(ctx, a.generation)
	if err != nil {
		return err
	}
	s.ready0, s.lastSeq = ready, seq
	_, err = patiently(ctx, s, "publish the takeover", func(ctx context.Context) (uint64, error) {
		var err error
		next, err = s.fence(ctx, ready.GetEpoch(), next)
		return next, err
	})
	if err != nil {
		return err
	}
	s.live = true
	s.env.Health.OK(divergence)
	s.env.Health.OK(lostTail)
	s.m.epoch.Set(float64(ready.GetEpoch()))
	s.st.Resume(ready.GetEpoch(), ready.GetGeneration())
	s.log.Info("shard ready", "epoch", ready.GetEpoch(), "checkpoint", ready.GetCheckpoint(), "generation", ready.GetGeneration(),
		"rows", ready.GetRows(), "offsets", ready.GetOffsets(), "why", a.why)
	return nil
}

// lostTail is the problem's name in the process's health.
const lostTail = "delta stream lost its tail"

// reaches refuses a stream of deltas that ends before what the job's facts have seen of
// it: it would give the lost sequences to others, which followers that have seen the lost
// ones would pass over.
func (s *Server) reaches(ctx context.Context, j lineage.Job) error {
	var seen uint64
	for _, c := range j.Checkpoints {
		for _, f := range c.V.GetShards() {
			seen = max(seen, f.GetSyncSeq())
		}
	}
	for _, e := range j.Exports {
		seen = max(seen, e.V.GetSyncSeq())
	}
	if seen == 0 {
		return nil
	}
	last, err := patiently(ctx, s, "find the end of the deltas", func(ctx context.Context) (uint64, error) {
		cctx, cancel := context.WithTimeout(ctx, busTimeout)
		defer cancel()
		return s.env.Bus.Deltas().Last(cctx)
	})
	if err != nil || last >= seen {
		return err
	}
	err = fmt.Errorf("MONOLITH_SYNC ends at sequence %d, a checkpoint or export of the job was made at %d: the stream has lost its tail. Have it go on behind what was lost (nats stream purge MONOLITH_SYNC --seq=%d --force); shards then publish every row again, and replicas load the newest export", last, seen, seen+1)
	s.log.Error("the shard does not start", "err", err)
	s.env.Health.Fail(lostTail, err)
	return err
}

// patiently repeats f while the bus is away.
func patiently[T any](ctx context.Context, s *Server, what string, f func(context.Context) (T, error)) (T, error) {
	wait := 50 * time.Millisecond
	for {
		v, err := f(ctx)
		if err == nil || ctx.Err() != nil || !bus.Retryable(err) {
			if err != nil {
				err = fmt.Errorf("%s: %w", what, err)
			}
			return v, err
		}
		s.log.Warn("the bus is away; trying again", "what", what, "err", err)
		if !sleep(ctx, wait) {
			return v, ctx.Err()
		}
		wait = min(2*wait, maxBackoff)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// seen is what the fleet view knows about this shard and its job.
type seen struct {
	seq        uint64 // last of this shard's subject, which the next fact expects
	epoch      uint64 // newest of this shard, 0: never ready
	generation uint64 // highest of the job
}

// newestEpoch is the newest epoch of a shard that any fact stored by now names.
func (s *Server) newestEpoch(ctx context.Context, of uint32) (uint64, error) {
	last, err := s.env.Bus.Log().LastOf(ctx, shard.Subject(s.env.BZID, s.cfg.Job, of))
	if err != nil {
		return 0, fmt.Errorf("find the shard's last fact: %w", err)
	}
	if err := s.fleet.Wait(ctx, last); err != nil {
		return 0, err
	}
	return s.epochOf(of), nil
}

// epochOf is the newest epoch of a shard that the fleet view knows.
func (s *Server) epochOf(shard uint32) (epoch uint64) {
	s.fleet.Read(func(f fleet.State) { epoch = f.Shards[s.cfg.Job][shard].Ready.V.GetEpoch() })
	return epoch
}

func (s *Server) look() (v seen) {
	s.fleet.Read(func(f fleet.State) {
		for i, x := range f.Shards[s.cfg.Job] {
			if i == uint32(s.cfg.Shard) {
				v.seq, v.epoch = x.Seq, x.Ready.V.GetEpoch()
			}
			v.generation = max(v.generation, x.Ready.V.GetGeneration())
		}
	})
	return v
}

// take appends Ready. A conflict is looked into: unless a newer epoch is there now, the
// decision is made again on the newer state.
func (s *Server) take(ctx context.Context, generation uint64) (*shard.Ready, uint64, error) {
	subject := shard.Subject(s.env.BZID, s.cfg.Job, uint32(s.cfg.Shard))
	log := s.env.Bus.Log()
	// The view may lag behind what this process or a predecessor has just appended.
	if err := s.catchUp(ctx, subject); err != nil {
		return nil, 0, err
	}
	v := s.look()
	if s.ready0 != nil && v.epoch > s.ready0.GetEpoch() {
		return nil, 0, fmt.Errorf("%w: epoch %d has followed %d", publish.ErrFenced, v.epoch, s.ready0.GetEpoch())
	}
	for {
		r := s.readyFact(v, generation)
		// The id is drawn anew for each decision, or the log would take a rival's
		// append for a repeat of this one.
		draft := bus.Draft{
			Subject: subject, Expect: v.seq,
			Event:  &shard.Event{Body: &shard.Event_Ready{Ready: r}},
			Header: events.Header{ID: "ps-" + rand.Text(), Source: source},
		}
		seqs, err := patiently(ctx, s, "append Ready", func(ctx context.Context) ([]uint64, error) {
			cctx, cancel := context.WithTimeout(ctx, busTimeout)
			defer cancel()
			return log.Append(cctx, draft)
		})
		if err == nil {
			return r, seqs[0], nil
		}
		if !errors.Is(err, bus.ErrConflict) {
			return nil, 0, err
		}
		if err := s.catchUp(ctx, subject); err != nil {
			return nil, 0, err
		}
		now := s.look()
		if now.epoch >= r.GetEpoch() {
			return nil, 0, fmt.Errorf("%w: epoch %d was taken while this process was starting; run one process per shard", publish.ErrFenced, now.epoch)
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return nil, 0, ctx.Err()
		}
		v = now
	}
}

// readyFact is what this process would say, given what it sees.
func (s *Server) readyFact(v seen, generation uint64) *shard.Ready {
	if s.cfg.Deterministic {
		switch {
		case generation > 0: // a roll-back names it
		case v.epoch > 0: // this shard has lost turns: all go back to a cut
			generation = v.generation + 1
		default: // no turn was possible without this shard
			generation = max(v.generation, 1)
		}
	}
	var rows uint64
	for _, n := range s.st.Rows() {
		rows += n
	}
	at := s.st.Standing()
	return &shard.Ready{
		Job: s.cfg.Job, Shard: uint32(s.cfg.Shard), Shards: uint32(s.cfg.Shards), Epoch: v.epoch + 1,
		RowsAddress: s.addr, NearAddresses: s.near, Checkpoint: at.Checkpoint, Offsets: at.Next, Generation: generation, Rows: rows, Restored: s.restored.Seq,
	}
}

// catchUp waits until the fleet view has folded the last event of subject.
func (s *Server) catchUp(ctx context.Context, subject events.Subject) error {
	last, err := patiently(ctx, s, "find the shard's last fact", func(ctx context.Context) (uint64, error) {
		cctx, cancel := context.WithTimeout(ctx, busTimeout)
		defer cancel()
		return s.env.Bus.Log().LastOf(cctx, subject)
	})
	if err != nil {
		return err
	}
	return s.fleet.Wait(ctx, last)
}

// fence publishes the takeover of each subject. A predecessor may still publish until
// then: what it did is read and marked, and the takeover tried again behind it. That
// strangers publish, too, is no reason to give the shard up.
func (s *Server) fence(ctx context.Context, epoch, next uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*busTimeout)
	defer cancel()
	b := s.env.Bus.Deltas()
	s.pub.Begin(epoch, map[string]uint64{})
	at := map[string]uint64{}
	for _, subject := range s.pub.Subjects() {
		draft, err := s.pub.Takeover(subject, s.st.Step())
		if err != nil {
			return next, err
		}
		for {
			var newest uint64
			if next, newest, err = s.reread(ctx, next, s.restored.SyncSeq); err != nil {
				return next, err
			}
			if newest > epoch {
				return next, fmt.Errorf("%w: its deltas carry epoch %d, this process got %d", publish.ErrFenced, newest, epoch)
			}
			if draft.Expect, err = b.LastOf(ctx, subject); err != nil {
				return next, fmt.Errorf("find the end of %s: %w", subject, err)
			}
			if draft.Expect >= next {
				continue // published since it was read
			}
			seq, err := b.Publish(ctx, draft)
			if err == nil {
				at[subject] = seq
				break
			}
			if !errors.Is(err, bus.ErrConflict) {
				return next, fmt.Errorf("publish the takeover on %s: %w", subject, err)
			}
		}
	}
	s.pub.Begin(epoch, at)
	return next, nil
}
