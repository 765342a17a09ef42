// Package cut makes the checkpoints of a training job: it holds all shards at one offset of each
// partition, has them write what they have learnt, puts exports together, and deletes those that
// are too old.
package cut

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/compat/tfgraph"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

const (
	commandTimeout  = 5 * time.Second
	advanceTimeout  = 4 * time.Second // below the time after which a shard lets go by itself
	snapshotTimeout = 2 * time.Minute
)

// Cutter makes one consistent cut of all shards.
type Cutter struct {
	Job   Job
	Name  string // of the cut, new each time
	Chief uint64 // epoch of the chief's lease
	ID    int64  // of the checkpoint; 0: not claimed yet
}

// Job is the job that is cut.
type Job struct {
	Bus           bus.Bus
	BZID, Name    string
	Dir           string // the job's, see Folder
	Shards        *shards.Set
	Deterministic bool
	Generation    func(shard int) uint64 // the timeline of a shard, as the fleet knows it
	Log           *slog.Logger
}

// errNotNow is a cut that the shards cannot make at this moment, such as while one of
// them is being started again.
var errNotNow = errors.New("the shards do not stand still for a checkpoint")

// ErrTermEnded is a cut that ended with the chief's lease, or its trainer: the next chief
// makes one.
var ErrTermEnded = errors.New("this trainer is no longer the job's chief")

// Passes says whether the next attempt may well succeed where err ended this one.
func Passes(err error) bool {
	if errors.Is(err, ErrTermEnded) {
		return true
	}
	if refused := new(bus.CommandError); errors.As(err, &refused) {
		return refused.Code == bus.CodeConflict || refused.Code == bus.CodeUnavailable || refused.Code == bus.CodeNotFound
	}
	return bus.Retryable(err) || errors.Is(err, errNotNow)
}

// Cut is what the shards wrote.
type Cut struct {
	Checkpoint *training.Checkpoint
	syncSeq    uint64 // every delta of the job up to here is in the cut
}

// Make runs hold, advance, snapshot and release. The shards are released in any case. claim
// names the checkpoint once nothing but writing it is left.
func (c *Cutter) Make(ctx context.Context, export bool, claim func(context.Context) (int64, error)) (_ Cut, err error) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
		defer cancel()
		if rerr := c.release(ctx); rerr != nil {
			// The shard lets go by itself, and what it wrote stands.
			c.Job.Log.Warn("a shard was not released", "cut", c.Name, "err", rerr)
		}
	}()
	states, err := c.states(ctx, shardcmd.Hold, func(i int) any {
		return shardcmd.HoldRequest{Cut: c.Name, Chief: c.Chief, Generation: c.Job.Generation(i)}
	})
	if err != nil {
		return Cut{}, err
	}
	targets := map[int32]int64{}
	for _, st := range states {
		for p, next := range st.Next {
			targets[p] = max(targets[p], next)
		}
	}
	if states, err = c.advance(ctx, targets); err != nil {
		return Cut{}, err
	}
	turn, generation := states[0].Turn, states[0].Generation
	for i, st := range states {
		if c.Job.Deterministic && (st.Turn != turn || st.Generation != generation) {
			return Cut{}, fmt.Errorf("%w: shard %d stands at turn %d of generation %d, shard 0 at turn %d of %d", errNotNow, i, st.Turn, st.Generation, turn, generation)
		}
	}
	if c.ID, err = claim(ctx); err != nil {
		return Cut{}, fmt.Errorf("claim a checkpoint's id: %w", err)
	}
	files, err := c.snapshot(ctx, turn, generation, export)
	if err != nil {
		return Cut{}, err
	}
	end, err := c.syncEnd(ctx, files)
	if err != nil {
		return Cut{}, err
	}
	return Cut{
		Checkpoint: &training.Checkpoint{
			Id: c.ID, Dir: c.Job.Dir, Offsets: targets, Shards: files, Turn: turn, Generation: generation, Slots: slotRows(files),
		},
		syncSeq: end,
	}, nil
}

// ask sends one command of the cut to shard i.
func (c *Cutter) ask(ctx context.Context, i int, endpoint string, body any, timeout time.Duration) ([]byte, error) {
	payload, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, err := c.Job.Bus.Commands().Call(ctx, c.Job.BZID, shardcmd.Command(c.Job.Name, i, endpoint), payload)
	if err != nil {
		return nil, fmt.Errorf("%s of shard %d: %w", endpoint, i, err)
	}
	return reply, nil
}

// askUnlessMoved is ask for what may take long. A shard that is killed meanwhile leaves its
// caller without an answer, and the chief, which waits for it, makes no other checkpoint:
// the wait is over once the shard is back as another. The other shards are waited for as
// before, since what this attempt has written is deleted behind it.
func (c *Cutter) askUnlessMoved(ctx context.Context, i int, endpoint string, body any, timeout time.Duration) ([]byte, error) {
	ctx, stop := c.Job.Shards.FollowOne(ctx, i)
	defer stop()
	reply, err := c.ask(ctx, i, endpoint, body, timeout)
	if err != nil && errors.Is(context.Cause(ctx), shards.ErrMoved) {
		return nil, fmt.Errorf("%w: %s of shard %d: %w", errNotNow, endpoint, i, shards.ErrMoved)
	}
	return reply, err
}

func (c *Cutter) states(ctx context.Context, endpoint string, body func(i int) any) ([]shardcmd.State, error) {
	states := make([]shardcmd.State, c.Job.Shards.Len())
	err := c.Job.Shards.Each(func(i int) error {
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

// Reachable says why not every shard takes commands.
func (c *Cutter) Reachable(ctx context.Context) error {
	_, err := c.states(ctx, shardcmd.Offsets, func(int) any { return struct{}{} })
	return err
}

// advance lets through what shards lack of the targets and waits until they have it:
// it is on its way, since it reached another shard, or its partition is taken over.
func (c *Cutter) advance(ctx context.Context, targets map[int32]int64) ([]shardcmd.State, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, advanceTimeout, errors.New("the shards did not reach one offset in time"))
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		states, err := c.states(ctx, shardcmd.Advance, func(int) any {
			return shardcmd.AdvanceRequest{Cut: c.Name, Targets: targets}
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
		if retry.Sleep(ctx, wait) != nil {
			return nil, fmt.Errorf("%w: shard %d stands at %v, the cut is at %v: %w", errNotNow, late, states[late].Next, targets, context.Cause(ctx))
		}
	}
}

func (c *Cutter) snapshot(ctx context.Context, turn, generation uint64, export bool) ([]*training.ShardFile, error) {
	files := make([]*training.ShardFile, c.Job.Shards.Len())
	err := c.Job.Shards.Each(func(i int) error {
		req := shardcmd.SnapshotRequest{Cut: c.Name, Checkpoint: c.ID, Dir: c.Job.Dir, Export: export, Version: c.ID}
		if c.Job.Deterministic {
			req.Turn, req.Generation = turn, generation
		}
		reply, err := c.askUnlessMoved(ctx, i, shardcmd.Snapshot, req, snapshotTimeout)
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
func (c *Cutter) syncEnd(ctx context.Context, files []*training.ShardFile) (uint64, error) {
	end, err := c.Job.Bus.Deltas().Last(ctx)
	if err != nil {
		return 0, fmt.Errorf("find the end of the deltas: %w", err)
	}
	states, err := c.states(ctx, shardcmd.Offsets, func(int) any { return struct{}{} })
	held := err == nil
	for _, st := range states {
		held = held && st.Held == c.Name
	}
	if held {
		return end, nil
	}
	c.Job.Log.Warn("a shard let go before the end of the cut, the export starts at its last delta", "cut", c.Name, "err", err)
	for _, f := range files {
		end = min(end, f.GetSyncSeq())
	}
	return end, nil
}

func (c *Cutter) release(ctx context.Context) error {
	errs := make([]error, c.Job.Shards.Len())
	_ = c.Job.Shards.Each(func(i int) error {
		_, errs[i] = c.ask(ctx, i, shardcmd.Release, shardcmd.ReleaseRequest{Cut: c.Name}, commandTimeout)
		return nil
	})
	return errors.Join(errs...)
}

// Entry writes the entry sub-model of the version: the spec, and the dense variables
// that the shards have just written.
func (c *Cutter) Entry(made Cut, m *runtime.Engine) (*training.ModelExported, error) {
	e := &checkpoint.Entry{
		Spec: m.Spec(), Version: c.ID, Job: c.Job.Name, Shards: uint32(c.Job.Shards.Len()),
		SyncSeq: made.syncSeq, Dense: map[string]checkpoint.Variable{},
	}
	var bands []checkpoint.Band
	for _, f := range made.Checkpoint.GetShards() {
		s, err := checkpoint.ReadDenseIn(made.Checkpoint.GetDir(), f.GetPath())
		if err != nil {
			return nil, fmt.Errorf("read back shard %d: %w", f.GetShard(), err)
		}
		if got := s.Manifest.Offsets; !maps.Equal(got, made.Checkpoint.GetOffsets()) {
			return nil, fmt.Errorf("shard %d wrote offsets %v, the cut is at %v", f.GetShard(), got, made.Checkpoint.GetOffsets())
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
	for _, v := range m.Variables() {
		if _, ok := e.Dense[v.Name]; !ok {
			return nil, fmt.Errorf("no shard wrote variable %q", v.Name)
		}
	}
	saved, err := tfgraph.Entry(e.Spec.GetName(), c.Job.Shards.Len())
	if err != nil {
		return nil, err
	}
	e.Files = map[string][]byte{tfgraph.FileName: saved}
	models := filepath.Join(c.Job.Dir, ExportsDir)
	version := strconv.FormatInt(c.ID, 10)
	dir := filepath.Join(models, "entry", version)
	if err := checkpoint.WriteEntry(dir, e); err != nil {
		return nil, err
	}
	identity, size, err := checkpoint.Written(dir)
	if err != nil {
		return nil, err
	}
	parts := map[string]*training.ExportedPart{"entry": {Export: identity, Bytes: size}}
	for _, f := range made.Checkpoint.GetShards() {
		if f.GetExported() != nil { // a shard of an older build does not say
			parts["ps_"+strconv.Itoa(int(f.GetShard()))] = f.GetExported()
		}
	}
	return &training.ModelExported{Version: c.ID, ModelDir: models, SubModels: subModels(c.Job.Shards.Len()), SyncSeq: made.syncSeq, Parts: parts}, nil
}
