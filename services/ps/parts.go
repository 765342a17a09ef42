package ps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/internal/parts"
)

// maxParts bounds those of one check.
const maxParts = 1 << 16

// checkParts answers what the shard's own disk holds of a checkpoint. A verdict is an answer: only what could not
// be looked at is an error.
func (s *Server) checkParts(ctx context.Context, r shardcmd.CheckRequest) (shardcmd.CheckResponse, error) {
	var all shardcmd.CheckResponse
	if !s.sameDir(r.Dir) {
		return all, s.otherDir(r.Dir)
	}
	if len(r.Parts) == 0 || len(r.Parts) > maxParts {
		return all, bus.Refuse(bus.CodeInvalid, "%d parts of checkpoint %d are named: give 1 to %d", len(r.Parts), r.Checkpoint, maxParts)
	}
	for _, p := range r.Parts {
		v, err := s.inspect(ctx, r, p)
		if err != nil {
			return all, err
		}
		all.Parts = append(all.Parts, v)
	}
	return all, nil
}

// inspect compares one part with what is said of it. What a shallow check finds wanting, before the shard may have to
// restore it, is fetched from another host; a deep one asks of what this machine has just written.
func (s *Server) inspect(ctx context.Context, r shardcmd.CheckRequest, p shardcmd.Part) (shardcmd.Verdict, error) {
	v, err := s.verdict(ctx, r, p)
	if err == nil && v.Fault != "" && !r.Deep {
		f := &training.ShardFile{Shard: p.Shard, Path: p.Path, Hash: p.Hash, Manifest: p.Manifest}
		if ferr := s.fetchPart(ctx, cmp.Or(r.Dir, s.cfg.Dir), f); ferr != nil {
			v.Fault += "; " + ferr.Error()
		} else {
			v, err = s.verdict(ctx, r, p)
		}
	}
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return v, fmt.Errorf("part %d of checkpoint %d could not be looked at: %w", p.Shard, r.Checkpoint, err)
	}
	if v.Fault != "" {
		s.log.Error("a part of a checkpoint is not what was written", "checkpoint", r.Checkpoint, "part", p.Shard, "fault", v.Fault)
	}
	return v, nil
}

// verdict compares what the disk has of one part with what is said of it.
func (s *Server) verdict(ctx context.Context, r shardcmd.CheckRequest, p shardcmd.Part) (shardcmd.Verdict, error) {
	v := shardcmd.Verdict{Shard: p.Shard}
	if !filepath.IsLocal(filepath.FromSlash(p.Path)) {
		v.Fault = fmt.Sprintf("%q leads out of %s", p.Path, s.cfg.Dir)
		return v, nil
	}
	found, err := checkpoint.InspectIn(ctx, s.cfg.Dir, p.Path, r.Deep)
	m := &found.Manifest
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.Fault = fmt.Sprintf("it is not on this machine, or not whole: %v", err)
	case parts.Damaged(err):
		v.Fault = err.Error()
	case err != nil:
		return v, err
	case m.Job != s.cfg.Job || m.Checkpoint != r.Checkpoint || m.Shard != p.Shard:
		v.Fault = fmt.Sprintf("%s is shard %d of job %q at checkpoint %d", p.Path, m.Shard, m.Job, m.Checkpoint)
	case m.Hash != p.Hash:
		v.Fault = fmt.Sprintf("%s hashes to %s, %s was written: it is from another attempt", p.Path, m.Hash, p.Hash)
	case found.Rows != p.Rows:
		v.Fault = fmt.Sprintf("%s has %d rows, %d were written", p.Path, found.Rows, p.Rows)
	case p.Bytes != 0 && found.Bytes != p.Bytes:
		v.Fault = fmt.Sprintf("%s has %d bytes, %d were written", p.Path, found.Bytes, p.Bytes)
	default:
		v.Offsets = m.Offsets
	}
	return v, nil
}

// otherDir refuses a folder that is not the job's here.
func (s *Server) otherDir(dir string) error {
	return bus.Refuse(bus.CodeInvalid, "checkpoints go below %s here, not %s: start both roles with the same --dir", s.cfg.Dir, dir)
}
