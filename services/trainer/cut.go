package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
)

const (
	commandTimeout  = 5 * time.Second
	advanceTimeout  = 4 * time.Second // below the time after which a shard lets go by itself
	snapshotTimeout = 2 * time.Minute
)

// cutter makes one consistent cut of all shards.
type cutter struct {
	s    *Server
	name string // of the cut, new each time
	id   int64  // of the checkpoint; 0: not claimed yet
	// chief is the epoch of the chief's lease.
	chief uint64
}

// errNotNow is a cut that the shards cannot make at this moment, such as while one of
// them is being started again.
var errNotNow = errors.New("the shards do not stand still for a checkpoint")

// errTermEnded is a cut that ended with the chief's lease, or its trainer: the next chief
// makes one.
var errTermEnded = errors.New("this trainer is no longer the job's chief")

// passes says whether the next attempt may well succeed where err ended this one.
func passes(err error) bool {
	if errors.Is(err, errTermEnded) {
		return true
	}
	if refused := new(bus.CommandError); errors.As(err, &refused) {
		return refused.Code == bus.CodeConflict || refused.Code == bus.CodeUnavailable || refused.Code == bus.CodeNotFound
	}
	return bus.Retryable(err) || errors.Is(err, errNotNow)
}

// cut is what the shards wrote.
type cut struct {
	checkpoint *training.Checkpoint
	syncSeq    uint64 // every delta of the job up to here is in the cut
}

// make runs hold, advance, snapshot and release. The shards are released in any case. claim
// names the checkpoint once nothing but writing it is left.
func (c *cutter) make(ctx context.Context, export bool, claim func(context.Context) (int64, error)) (_ cut, err error) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
		defer cancel()
		if rerr := c.release(ctx); rerr != nil {
			// The shard lets go by itself, and what it wrote stands.
			c.s.log.Warn("a shard was not released", "cut", c.name, "err", rerr)
		}
	}()
	states, err := c.states(ctx, shardcmd.Hold, func(i int) any {
		return shardcmd.HoldRequest{Cut: c.name, Chief: c.chief, Generation: c.s.generation(i)}
	})
	if err != nil {
		return cut{}, err
	}
	targets := map[int32]int64{}
	for _, st := range states {
		for p, next := range st.Next {
			targets[p] = max(targets[p], next)
		}
	}
	if states, err = c.advance(ctx, targets); err != nil {
		return cut{}, err
	}
	turn, generation := states[0].Turn, states[0].Generation
	for i, st := range states {
		if c.s.cfg.Deterministic && (st.Turn != turn || st.Generation != generation) {
			return cut{}, fmt.Errorf("%w: shard %d stands at turn %d of generation %d, shard 0 at turn %d of %d", errNotNow, i, st.Turn, st.Generation, turn, generation)
		}
	}
	if c.id, err = claim(ctx); err != nil {
		return cut{}, fmt.Errorf("claim a checkpoint's id: %w", err)
	}
	files, err := c.snapshot(ctx, turn, generation, export)
	if err != nil {
		return cut{}, err
	}
	end, err := c.syncEnd(ctx, files)
	if err != nil {
		return cut{}, err
	}
	return cut{
		checkpoint: &training.Checkpoint{
			Id: c.id, Dir: c.s.cfg.Dir, Offsets: targets, Shards: files, Turn: turn, Generation: generation,
		},
		syncSeq: end,
	}, nil
}

// checkpointDir is the folder that a job's shards write checkpoint id to, each its own
// below it.
func checkpointDir(dir string, id int64) string {
	return filepath.Join(dir, "model.ckpt-"+strconv.FormatInt(id, 10))
}

// ask sends one command of the cut to shard i.
func (c *cutter) ask(ctx context.Context, i int, endpoint string, body any, timeout time.Duration) ([]byte, error) {
	payload, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, err := c.s.env.Bus.Commands().Call(ctx, c.s.env.BZID, shardcmd.Command(c.s.cfg.Job, i, endpoint), payload)
	if err != nil {
		return nil, fmt.Errorf("%s of shard %d: %w", endpoint, i, err)
	}
	return reply, nil
}

func (c *cutter) states(ctx context.Context, endpoint string, body func(i int) any) ([]shardcmd.State, error) {
	states := make([]shardcmd.State, c.s.cfg.Shards)
	err := c.s.shards.each(func(i int) error {
		reply, err := c.ask(ctx, i, endpoint, body(i), commandTimeout)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(reply, &states[i]); err != nil {
			return fmt.Errorf("%s of shard %d: %w", endpoint, i, err)
		}
		return nil
	})
	return states, err
}

// advance lets through what shards lack of the targets and waits until they have it:
// it is on its way, since it reached another shard, or its partition is taken over.
func (c *cutter) advance(ctx context.Context, targets map[int32]int64) ([]shardcmd.State, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, advanceTimeout, errors.New("the shards did not reach one offset in time"))
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		states, err := c.states(ctx, shardcmd.Advance, func(int) any {
			return shardcmd.AdvanceRequest{Cut: c.name, Targets: targets}
		})
		if err != nil {
			return nil, err
		}
		late := -1
		for i, st := range states {
			for p, target := range targets {
				if st.Next[p] > target {
					return nil, fmt.Errorf("%w: shard %d is at offset %d of partition %d, above the cut at %d", errNotNow, i, st.Next[p], p, target)
				}
				if st.Next[p] < target {
					late = i
				}
			}
		}
		if late < 0 {
			return states, nil
		}
		pause(ctx, wait)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: shard %d stands at %v, the cut is at %v: %w", errNotNow, late, states[late].Next, targets, context.Cause(ctx))
		}
	}
}

func (c *cutter) snapshot(ctx context.Context, turn, generation uint64, export bool) ([]*training.ShardFile, error) {
	files := make([]*training.ShardFile, c.s.cfg.Shards)
	err := c.s.shards.each(func(i int) error {
		req := shardcmd.SnapshotRequest{Cut: c.name, Checkpoint: c.id, Dir: c.s.cfg.Dir, Export: export, Version: c.id}
		if c.s.cfg.Deterministic {
			req.Turn, req.Generation = turn, generation
		}
		reply, err := c.ask(ctx, i, shardcmd.Snapshot, req, snapshotTimeout)
		if err != nil {
			return err
		}
		files[i] = new(training.ShardFile)
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(reply, files[i]); err != nil {
			return fmt.Errorf("snapshot of shard %d: %w", i, err)
		}
		if files[i].GetShard() != uint32(i) {
			return fmt.Errorf("snapshot of shard %d: it answered for shard %d", i, files[i].GetShard())
		}
		return nil
	})
	return files, err
}

// syncEnd is the sequence behind which followers of this export go on. Every shard has
// published what the cut holds, and a held shard publishes nothing: while all are held
// that is the end of the stream, else the least that a shard wrote into its snapshot.
func (c *cutter) syncEnd(ctx context.Context, files []*training.ShardFile) (uint64, error) {
	end, err := c.s.env.Bus.Deltas().Last(ctx)
	if err != nil {
		return 0, fmt.Errorf("find the end of the deltas: %w", err)
	}
	states, err := c.states(ctx, shardcmd.Offsets, func(int) any { return struct{}{} })
	held := err == nil
	for _, st := range states {
		held = held && st.Held == c.name
	}
	if held {
		return end, nil
	}
	c.s.log.Warn("a shard let go before the end of the cut, the export starts at its last delta", "cut", c.name, "err", err)
	for _, f := range files {
		end = min(end, f.GetSyncSeq())
	}
	return end, nil
}

func (c *cutter) release(ctx context.Context) error {
	errs := make([]error, c.s.cfg.Shards)
	_ = c.s.shards.each(func(i int) error {
		_, errs[i] = c.ask(ctx, i, shardcmd.Release, shardcmd.ReleaseRequest{Cut: c.name}, commandTimeout)
		return nil
	})
	return errors.Join(errs...)
}

// entry writes the entry sub-model of the version: the spec, and the dense variables
// that the shards have just written.
func (c *cutter) entry(made cut) (*training.ModelExported, error) {
	e := &checkpoint.Entry{
		Spec: c.s.engine.Spec(), Version: c.id, Job: c.s.cfg.Job, Shards: uint32(c.s.cfg.Shards),
		SyncSeq: made.syncSeq, Dense: map[string]checkpoint.Variable{},
	}
	var bands []checkpoint.Band
	for _, f := range made.checkpoint.GetShards() {
		s, err := checkpoint.ReadDenseIn(made.checkpoint.GetDir(), f.GetPath())
		if err != nil {
			return nil, fmt.Errorf("read back shard %d: %w", f.GetShard(), err)
		}
		if got := s.Manifest.Offsets; !maps.Equal(got, made.checkpoint.GetOffsets()) {
			return nil, fmt.Errorf("shard %d wrote offsets %v, the cut is at %v", f.GetShard(), got, made.checkpoint.GetOffsets())
		}
		for name, v := range s.Dense {
			v.Slots = nil
			e.Dense[name] = v
		}
		bands = append(bands, s.Bands...)
	}
	if err := checkpoint.Join(e.Dense, bands); err != nil {
		return nil, fmt.Errorf("put what the shards wrote together: %w", err)
	}
	for _, v := range c.s.engine.Variables() {
		if _, ok := e.Dense[v.Name]; !ok {
			return nil, fmt.Errorf("no shard wrote variable %q", v.Name)
		}
	}
	models := filepath.Join(c.s.cfg.Dir, exportsDir)
	version := strconv.FormatInt(c.id, 10)
	if err := checkpoint.WriteEntry(filepath.Join(models, "entry", version), e); err != nil {
		return nil, err
	}
	return &training.ModelExported{Version: c.id, ModelDir: models, SubModels: c.s.subModels(), SyncSeq: made.syncSeq}, nil
}
