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
	// Variables are the numbers of the model's dense variables, as the shards hold them.
	Variables func(ctx context.Context, turn, generation uint64) ([][]float32, error)
	Log       *slog.Logger
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
	variables  [][]float32
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
	var variables [][]float32 // of the cut: the shards learn nothing before they have written it
	if export {
		if variables, err = c.Job.variables(ctx, turn, generation); err != nil {
			return Cut{}, err
		}
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
		syncSeq: end, variables: variables,
	}, nil
}

// variables asks the shards, while they stand at the cut.
func (j *Job) variables(ctx context.Context, turn, generation uint64) ([][]float32, error) {
	if !j.Deterministic {
		turn, generation = 0, 0
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	v, err := j.Variables(ctx, turn, generation)
	if err != nil {
		return nil, fmt.Errorf("%w: the dense variables of the cut: %w", errNotNow, err)
	}
	return v, nil
}

func (c *Cutter) states(ctx context.Context, endpoint string, body func(i int) any) ([]shardcmd.State, error) {
	states := make([]shardcmd.State, c.Job.Shards.Len())
	err := c.Job.Shards.Each(func(i int) error {
		reply, err := c.Job.ask(ctx, i, endpoint, body(i), commandTimeout)
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
		reply, err := c.Job.askUnlessMoved(ctx, i, shardcmd.Snapshot, req, snapshotTimeout)
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
		_, errs[i] = c.Job.ask(ctx, i, shardcmd.Release, shardcmd.ReleaseRequest{Cut: c.Name}, commandTimeout)
		return nil
	})
	return errors.Join(errs...)
}

// Entry writes the entry sub-model of the version: the spec, and the dense variables
// that the shards held at the cut, beside other files of the entry.
func (c *Cutter) Entry(made Cut, m *runtime.Engine, files map[string][]byte) (*training.ModelExported, error) {
	e := &checkpoint.Entry{
		Spec: m.Spec(), Version: c.ID, Job: c.Job.Name, Shards: uint32(c.Job.Shards.Len()),
		SyncSeq: made.syncSeq, Dense: map[string]checkpoint.Variable{},
	}
	for i, v := range m.Variables() {
		if i >= len(made.variables) || len(made.variables[i]) != v.Size {
			return nil, fmt.Errorf("the shards did not answer variable %q of %d numbers", v.Name, v.Size)
		}
		e.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: made.variables[i]}
	}
	saved, err := tfgraph.Entry(e.Spec.GetName(), c.Job.Shards.Len())
	if err != nil {
		return nil, err
	}
	e.Files = map[string][]byte{tfgraph.FileName: saved}
	maps.Copy(e.Files, files)
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
