package ps

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/ps/state"
)

// anyCheckpoint stands for the newest one that can be read.
const anyCheckpoint = -1

// job is what the facts say of the shard's job.
func (s *Server) job() (j lineage.Job) {
	s.lineage.Read(func(l lineage.State) { j = l.Jobs[s.cfg.Job] })
	return j
}

// restore loads the checkpoint named, the newest one of the job's timeline that is whole
// for anyCheckpoint, and the untrained model for 0 or where none was ever saved. It
// returns the manifest of what was loaded, nil for none. Checkpoints that are damaged, or
// whose rows no table takes, are passed over with an error in the log; that all are is an
// error.
func (s *Server) restore(ctx context.Context, j lineage.Job, id int64) (*checkpoint.Manifest, error) {
	all := j.Restorable()
	if id == 0 || len(all) == 0 && id == anyCheckpoint {
		return nil, s.st.Load(nil)
	}
	var errs []error
	for _, c := range all {
		if id != anyCheckpoint && c.GetId() != id {
			continue
		}
		shard, err := s.read(ctx, c)
		if err == nil {
			err = s.st.Load(shard)
			if err == nil {
				return &shard.Manifest, nil
			}
			if errors.Is(err, state.ErrOtherModel) { // so would be those before
				return nil, fmt.Errorf("restore checkpoint %d: %w", c.GetId(), err)
			}
		}
		err = fmt.Errorf("checkpoint %d: %w", c.GetId(), err)
		s.log.Error("a saved checkpoint cannot be restored; trying the one before", "err", err)
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, fmt.Errorf("no fact says that checkpoint %d of job %q was saved", id, s.cfg.Job)
	}
	return nil, fmt.Errorf("none of the saved checkpoints below %s can be restored; bring one back, the shard must not start empty: %w", s.cfg.Dir, errors.Join(errs...))
}

// read reads what this shard keeps of a checkpoint.
func (s *Server) read(ctx context.Context, c *training.Checkpoint) (*checkpoint.Shard, error) {
	if len(c.GetShards()) != s.cfg.Shards {
		return s.reshard(ctx, c)
	}
	return s.readPart(ctx, c, s.cfg.Shard)
}

// readPart reads what shard i wrote. Where this machine does not have that, or has it damaged, it is fetched
// from a host that has it.
func (s *Server) readPart(ctx context.Context, c *training.Checkpoint, i int) (*checkpoint.Shard, error) {
	shard, err := s.readHere(c, i)
	if err == nil {
		return shard, nil
	}
	for _, f := range c.GetShards() {
		if f.GetShard() != uint32(i) {
			continue
		}
		if ferr := s.fetchPart(ctx, c.GetDir(), f); ferr != nil {
			return nil, fmt.Errorf("%w; %w", err, ferr)
		}
		return s.readHere(c, i)
	}
	return nil, err
}

// readHere reads what shard i wrote from this machine's disk, and verifies that it is of this checkpoint.
func (s *Server) readHere(c *training.Checkpoint, i int) (*checkpoint.Shard, error) {
	at := slices.IndexFunc(c.GetShards(), func(f *training.ShardFile) bool { return f.GetShard() == uint32(i) })
	if at < 0 {
		return nil, fmt.Errorf("it names %d shards, and none of them is shard %d", len(c.GetShards()), i)
	}
	file := c.GetShards()[at]
	shard, err := checkpoint.ReadShardIn(s.cfg.Dir, file.GetPath())
	if err != nil {
		return nil, err
	}
	m := shard.Manifest
	switch {
	case m.Job != s.cfg.Job || m.Shard != uint32(i) || m.Shards != uint32(len(c.GetShards())) || m.Checkpoint != c.GetId():
		return nil, fmt.Errorf("%s holds shard %d of %d of job %q at checkpoint %d", file.GetPath(), m.Shard, m.Shards, m.Job, m.Checkpoint)
	case m.Hash != file.GetHash():
		return nil, fmt.Errorf("%s hashes to %s, the fact says %s: it is from another attempt", file.GetPath(), m.Hash, file.GetHash())
	}
	return shard, nil
}

// written says whether d was written by a shard of the job whose rows this one may have, in
// this life or an earlier one: every writer has said as a fact that it is ready, with its
// epoch, before it writes.
func (s *Server) written(ctx context.Context, d *delta.Delta) (bool, error) {
	if d.GetJob() != s.cfg.Job || d.GetShard() != uint32(s.cfg.Shard) && !s.resharded {
		return false, nil
	}
	if d.GetEpoch() <= s.epochOf(d.GetShard()) {
		return true, nil
	}
	newest, err := s.newestEpoch(ctx, d.GetShard())
	return d.GetEpoch() <= newest, err
}

// reread reads the deltas that may hold this shard's rows from sequence from to the end of the stream, marks
// their ids as touched, sets again what was assigned behind undone, and returns the
// sequence to go on from and the highest epoch met.
// Where the stream has discarded some, every row is marked; rows that only the lost
// deltas made are beyond recall, and followers that far behind load an export anyway.
func (s *Server) reread(ctx context.Context, from, undone uint64) (next, epoch uint64, err error) {
	b := s.env.Bus.Deltas()
	for {
		last, err := b.Last(ctx)
		if err != nil {
			return 0, 0, fmt.Errorf("find the end of the deltas: %w", err)
		}
		if last < from {
			return from, epoch, nil
		}
		err = b.Follow(ctx, from, last, s.timeline(), func(m bus.StoredDelta) error {
			var d delta.Delta
			if err := proto.Unmarshal(m.Data, &d); err != nil {
				s.log.Error("a delta of this shard does not decode; it is passed over", "seq", m.Seq, "err", err)
				return nil
			}
			if own, err := s.written(ctx, &d); err != nil {
				return err
			} else if !own {
				s.log.Error("a delta on this shard's subject is of no writer that the facts know; it is passed over", "seq", m.Seq, "job", d.GetJob(), "shard", d.GetShard(), "epoch", d.GetEpoch())
				return nil
			}
			if d.GetShard() == uint32(s.cfg.Shard) {
				epoch = max(epoch, d.GetEpoch())
			}
			err := s.st.Reread(&d, m.Seq > undone)
			if errors.Is(err, state.ErrMisfit) {
				s.log.Error("an assignment in a delta is passed over", "seq", m.Seq, "err", err)
				return nil
			}
			return err
		})
		if errors.Is(err, bus.ErrTrimmed) {
			s.log.Warn("deltas after the checkpoint have been discarded; every row is published again", "from", from)
			s.st.TouchAll()
			if from, err = b.First(ctx); err != nil {
				return 0, 0, fmt.Errorf("find the oldest delta kept: %w", err)
			}
			continue
		}
		if err != nil {
			return 0, 0, fmt.Errorf("read own deltas from %d to %d: %w", from, last, err)
		}
		from = last + 1
	}
}
