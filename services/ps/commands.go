package ps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/ps/publish"
	"github.com/monolith-go/monolith/services/ps/state"
)

// longest a command may take. A snapshot writes files; the rest is done at once, or
// waits for applies no longer than a cut may hold them.
const (
	commandTimeout  = 10 * time.Second
	snapshotTimeout = 2 * time.Minute
)

func (s *Server) service() bus.Service {
	return bus.Service{
		BZID: s.env.BZID, Name: shardcmd.Service(s.cfg.Job, s.cfg.Shard), Version: "1.0.0",
		Description: fmt.Sprintf("parameter-server shard %d of job %s: checkpoint cuts, barriers, figures", s.cfg.Shard, s.cfg.Job),
		Endpoints: map[string]bus.Handler{
			shardcmd.Offsets: command(commandTimeout, `{}`, func(context.Context, struct{}) (any, error) { return s.st.Now() }),
			shardcmd.Hold: command(commandTimeout, `{"cut":"c1"}`, func(_ context.Context, r shardcmd.HoldRequest) (any, error) {
				return s.st.Hold(r, s.cfg.HoldTimeout)
			}),
			shardcmd.Advance: command(max(commandTimeout, s.cfg.HoldTimeout), `{"cut":"c1","targets":{"0":120}}`, func(ctx context.Context, r shardcmd.AdvanceRequest) (any, error) {
				return s.st.Advance(ctx, r)
			}),
			shardcmd.Snapshot: command(snapshotTimeout, `{"cut":"c1","checkpoint":3,"export":true}`, func(ctx context.Context, r shardcmd.SnapshotRequest) (any, error) {
				f, err := s.snapshot(ctx, r)
				return events.JSON[*training.ShardFile]{V: f}, err
			}),
			shardcmd.Release: command(commandTimeout, `{"cut":"c1"}`, func(_ context.Context, r shardcmd.ReleaseRequest) (any, error) {
				return s.st.Release(r)
			}),
			shardcmd.Check: command(snapshotTimeout, `{"checkpoint":3,"parts":[{"shard":0,"path":"model.ckpt-3/ps_0","hash":"…","rows":7}]}`, func(ctx context.Context, r shardcmd.CheckRequest) (any, error) {
				return s.checkParts(ctx, r)
			}),
			shardcmd.Discard: command(snapshotTimeout, `{"checkpoints":[3]}`, func(ctx context.Context, r shardcmd.DiscardRequest) (any, error) {
				return struct{}{}, s.discard(ctx, r)
			}),
			shardcmd.Hash: command(commandTimeout, `{}`, func(context.Context, struct{}) (any, error) { return s.st.Hash() }),
			shardcmd.Barrier: command(maxBarrierWait+time.Second, `{"id":"epoch","worker":"w0","numWorkers":2}`, func(ctx context.Context, r shardcmd.BarrierRequest) (any, error) {
				return s.barriers.wait(ctx, r)
			}),
			shardcmd.Stats:  command(commandTimeout, `{}`, func(context.Context, struct{}) (any, error) { return s.stats() }),
			shardcmd.Health: command(commandTimeout, `{}`, func(context.Context, struct{}) (any, error) { return s.health(), nil }),
			shardcmd.Assign: command(commandTimeout, `{"requestId":"r1","table":"movie","ids":[…],"values":[…]}`, func(ctx context.Context, r shardcmd.AssignRequest) (any, error) {
				return s.assign(ctx, r)
			}),
			shardcmd.Rollback: command(snapshotTimeout, `{"generation":1,"reason":"…"}`, func(ctx context.Context, r shardcmd.RollbackRequest) (any, error) {
				return s.rollback(ctx, r)
			}),
		},
	}
}

// command decodes a body, bounds the work and gives every error a code.
func command[Q any](limit time.Duration, example string, f func(context.Context, Q) (any, error)) bus.Handler {
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		var q Q
		if err := role.DecodeJSON(payload, &q, example); err != nil {
			return nil, err
		}
		a, err := f(ctx, q)
		if err != nil {
			return nil, refusal(err)
		}
		return json.Marshal(a)
	}
}

func refusal(err error) error {
	var r *bus.CommandError
	switch {
	case errors.As(err, &r):
		return r
	case errors.Is(err, publish.ErrFenced), errors.Is(err, bus.ErrConflict):
		return bus.Refuse(bus.CodeConflict, "%v: look the shard up again", err)
	case errors.Is(err, bus.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		rowwire.CodeOf(err) == rowwire.Unavailable && errors.As(err, new(*rowwire.Error)):
		return bus.Refuse(bus.CodeUnavailable, "%v: ask again, a repeat does no harm", err)
	}
	return bus.Refuse(bus.CodeInternal, "%v", err)
}

// snapshot writes the shard's part of a checkpoint, and of an export:
//
//	publish what is touched, so that followers behind the sync sequence lack nothing
//	copy under the hold
//	write both directories, each whole or not at all
//
// After a crash in between, or when the chief gives the cut up, nothing refers to what
// was written; the next attempt has another id.
func (s *Server) snapshot(ctx context.Context, r shardcmd.SnapshotRequest) (*training.ShardFile, error) {
	if r.Checkpoint < 1 || r.Version < 0 {
		return nil, bus.Refuse(bus.CodeInvalid, "checkpoint %d, version %d: both count from 1", r.Checkpoint, r.Version)
	}
	if !s.sameDir(r.Dir) {
		return nil, s.otherDir(r.Dir)
	}
	select { // one writer per directory
	case <-s.saving:
		defer func() { s.saving <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if f, err := s.st.Taken(r); f != nil || err != nil {
		return f, err
	}
	for _, c := range s.job().Checkpoints {
		if c.V.GetId() == r.Checkpoint {
			return nil, bus.Refuse(bus.CodeConflict, "checkpoint %d is saved already and is never replaced: choose the next id", r.Checkpoint)
		}
	}
	var syncSeq uint64
	err := s.do(ctx, func(ctx context.Context) error {
		if err := s.st.CheckCut(r); err != nil {
			return err
		}
		if err := s.publish(ctx, func(int) bool { return true }); err != nil {
			if errors.Is(err, state.ErrDiverged) {
				return errors.Join(err, s.diverged(ctx, err))
			}
			return err
		}
		syncSeq = s.pub.Seq()
		return s.pub.Unfenced(ctx)
	})
	if err != nil {
		return nil, err
	}
	all, err := s.st.CopyCut(r, syncSeq)
	if err != nil {
		return nil, err
	}
	path := s.cfg.checkpointPath(r.Checkpoint)
	m, err := checkpoint.CreateShard(filepath.Join(s.cfg.Dir, path), all)
	if errors.Is(err, checkpoint.ErrNotFinite) { // an optimizer's slot, which no delta carries
		err = fmt.Errorf("%w: %w", state.ErrDiverged, err)
		return nil, errors.Join(err, s.do(ctx, func(ctx context.Context) error { return s.diverged(ctx, err) }))
	}
	if err != nil {
		return nil, taken(err, r.Checkpoint)
	}
	identity, size, err := checkpoint.Written(filepath.Join(s.cfg.Dir, path))
	if err != nil {
		return nil, err
	}
	var exported *training.ExportedPart
	if r.Export {
		version := r.Version
		if version == 0 {
			version = r.Checkpoint
		}
		dir := filepath.Join(s.cfg.Dir, s.cfg.exportPath(version))
		if _, err := checkpoint.CreateShard(dir, checkpoint.Export(all)); err != nil {
			return nil, taken(err, r.Checkpoint)
		}
		identity, size, err := checkpoint.Written(dir)
		if err != nil {
			return nil, err
		}
		exported = &training.ExportedPart{Export: identity, Bytes: size}
	}
	f := fileOf(m, path)
	f.Exported, f.Bytes, f.Manifest, f.Slots = exported, size, identity, slotRows(all.Tables)
	s.st.Took(r, f)
	return f, nil
}

// fileOf is what a manifest says of the part at path.
func fileOf(m checkpoint.Manifest, path string) *training.ShardFile {
	f := &training.ShardFile{Shard: m.Shard, Path: filepath.ToSlash(path), Epoch: m.Epoch, Step: m.Step, SyncSeq: m.SyncSeq, Hash: m.Hash, Crc32C: m.Files}
	for _, t := range m.Tables {
		f.Rows += t.Rows
	}
	return f
}

// taken names the way out where an id has been written under before.
func taken(err error, id int64) error {
	if errors.Is(err, fs.ErrExist) {
		return bus.Refuse(bus.CodeConflict, "checkpoint %d: %v, and what is written is never replaced: choose the next id", id, err)
	}
	return err
}

// sameDir says whether dir is the shard's own folder, however it is spelled.
func (s *Server) sameDir(dir string) bool {
	if dir == "" || filepath.Clean(dir) == filepath.Clean(s.cfg.Dir) {
		return true
	}
	plain := func(p string) string {
		if abs, err := filepath.Abs(p); err == nil {
			p = abs
		}
		if real, err := filepath.EvalSymlinks(p); err == nil {
			p = real
		}
		return p
	}
	return plain(dir) == plain(s.cfg.Dir)
}

// rollback leaves the generation named, once, for the newest checkpoint.
func (s *Server) rollback(ctx context.Context, r shardcmd.RollbackRequest) (shardcmd.State, error) {
	if !s.cfg.Deterministic {
		return shardcmd.State{}, bus.Refuse(bus.CodeInvalid, "job %q is not deterministic: its shards recover one by one, without a roll-back", s.cfg.Job)
	}
	err := s.do(ctx, func(context.Context) error {
		switch now := s.ready0.GetGeneration(); {
		case r.Generation > now:
			return bus.Refuse(bus.CodeConflict, "the shard is in generation %d, not yet in %d: ask again", now, r.Generation)
		case r.Generation == now: // else it was left already
			s.forced = &target{checkpoint: anyCheckpoint, generation: now + 1, why: "asked for: " + r.Reason}
		}
		return nil
	})
	if err != nil {
		return shardcmd.State{}, err
	}
	return s.st.Beyond(ctx, r.Generation)
}
