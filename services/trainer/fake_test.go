package trainer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/trainer/cut"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

const (
	bzid   = "test"
	theJob = "job"
)

// learntRange is one apply that a shard took.
type learntRange struct {
	Partition int32
	From, To  int64
}

// memory is what a shard loses back to its last checkpoint when it restarts.
type memory struct {
	next   map[int32]int64
	ranges []learntRange
	turn   uint64
}

func (m memory) clone() memory {
	return memory{maps.Clone(m.next), slices.Clone(m.ranges), m.turn}
}

// fakeShard keeps strict books instead of rows: it takes a range only at its recorded
// offset, and checks that the ids are those of the records in it.
type fakeShard struct {
	t        *testing.T
	b        bus.Bus
	index    int
	shards   int
	spec     *model.ModelSpec
	truth    func(r learntRange) []int64 // fids of the valid records of a range, sorted
	flaky    float64                     // part of the answers that get lost
	inOrder  bool
	snapErr  error
	disk     string           // of its own; "": the folder that it is told
	full     bool             // it deletes nothing
	deletes  func()           // called before it deletes; may be nil
	lies     bool             // what it wrote is damaged
	kept     map[int64]memory // snapshots, by checkpoint
	restored uint64           // jobRestored that now follows
	busy     int              // how many more holds are refused, as while an earlier chief's cut lasts

	mu      sync.Mutex
	changed chan struct{}
	now     memory
	saved   memory // what it has come back with, or would without a checkpoint
	epochs  map[int32]uint64
	epoch   uint64
	gen     uint64
	held    string
	targets map[int32]int64
	poison  func(fid int64) bool // whose rows are infinite
	holds   int
	rolled  int
	traces  []string // of the applies that had one
	took    func(*rowwire.ApplyRequest)
	asked   func(*rowwire.LookupRequest) // set before anything is learnt
	refuses func(*rowwire.ApplyRequest) rowwire.Code
	rng     *rand.Rand
	stop    func()
}

func newFakeShard(t *testing.T, b bus.Bus, index, shards int, truth func(learntRange) []int64) *fakeShard {
	s := &fakeShard{
		t: t, b: b, index: index, shards: shards, spec: trainertest.SmallSpec(), truth: truth,
		changed: make(chan struct{}), now: memory{next: map[int32]int64{}}, saved: memory{next: map[int32]int64{}},
		epochs: map[int32]uint64{}, rng: rand.New(rand.NewPCG(uint64(index), 7)),
	}
	stop, err := b.Commands().Serve(t.Context(), bus.Service{
		BZID: bzid, Name: shardcmd.Service(theJob, index), Version: "1.0.0", Description: "fake",
		Endpoints: map[string]bus.Handler{
			shardcmd.Offsets: s.command(func([]byte) error { return nil }), shardcmd.Hold: s.command(s.hold),
			shardcmd.Advance: s.command(s.advance), shardcmd.Release: s.command(s.release),
			shardcmd.Rollback: s.command(s.rollback), shardcmd.Snapshot: s.snapshot, shardcmd.Check: s.check,
			shardcmd.Discard: s.discard,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	t.Cleanup(func() { s.stop() })
	s.start()
	return s
}

// start listens and says so; stop takes the process down with what it had in memory.
func (s *fakeShard) start() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Error(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := rowwire.Serve(ctx, ln, s, rowwire.Options{Drain: 10 * time.Millisecond}); err != nil {
			s.t.Error(err)
		}
	}()
	s.stop = sync.OnceFunc(func() { cancel(); <-done })
	s.mu.Lock()
	s.epoch++
	s.ready(ln.Addr().String())
	s.mu.Unlock()
}

func (s *fakeShard) ready(addr string) {
	subject := events.Join(bzid, "shard", shard.Aggregate(theJob, uint32(s.index)))
	_, err := s.b.Log().Append(context.Background(), bus.Draft{Subject: subject, Expect: bus.Any, Event: &shard.Event{Body: &shard.Event_Ready{Ready: &shard.Ready{
		Job: theJob, Shard: uint32(s.index), Shards: uint32(s.shards), Epoch: s.epoch, RowsAddress: addr, Generation: s.gen, Offsets: s.now.next, Restored: s.restored,
	}}}})
	if err != nil {
		s.t.Error(err)
	}
}

// fails has every snapshot fail from now on; nil: none.
func (s *fakeShard) fails(err error) {
	s.mu.Lock()
	s.snapErr = err
	s.mu.Unlock()
}

// crash loses everything since the last checkpoint and comes back elsewhere.
func (s *fakeShard) crash() {
	s.stop()
	s.mu.Lock()
	s.now, s.held, s.targets = s.recalled(), "", nil
	s.tell()
	s.mu.Unlock()
	s.start()
}

func (s *fakeShard) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// lost says whether this answer is to be lost.
func (s *fakeShard) lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rng.Float64() < s.flaky {
		return rowwire.Errorf(rowwire.Unavailable, "the answer got lost")
	}
	return nil
}

func (s *fakeShard) wait(ctx context.Context, turn, generation uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.inOrder {
		if generation != s.gen {
			return rowwire.Errorf(rowwire.WrongGeneration, "it is %d", s.gen)
		}
		if turn < s.now.turn {
			return rowwire.Errorf(rowwire.Overlap, "turn %d is over", turn)
		}
		if turn == s.now.turn {
			return nil
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			s.mu.Lock()
			return rowwire.Errorf(rowwire.Unavailable, "not its turn")
		}
		s.mu.Lock()
	}
	return nil
}

func (s *fakeShard) Lookup(ctx context.Context, r *rowwire.LookupRequest) (*rowwire.LookupResponse, error) {
	if s.asked != nil {
		s.asked(r)
	}
	if err := s.wait(ctx, r.Turn, r.Generation); err != nil {
		return nil, err
	}
	res := &rowwire.LookupResponse{}
	s.mu.Lock()
	poison := s.poison
	s.mu.Unlock()
	for _, t := range r.Tables {
		dim := int(modelspec.Table(s.spec, t.Table).GetDim())
		v := make([]float32, len(t.IDs)*dim)
		for i := range v {
			v[i] = float32(t.IDs[i/dim]%97)/97 - 0.5
			if poison != nil && poison(t.IDs[i/dim]) {
				v[i] = float32(math.Inf(1))
			}
		}
		res.Values = append(res.Values, v)
	}
	return res, s.lost()
}

func (s *fakeShard) Dense(ctx context.Context, r *rowwire.DenseRequest) (*rowwire.DenseResponse, error) {
	if err := s.wait(ctx, r.Turn, r.Generation); err != nil {
		return nil, err
	}
	res := &rowwire.DenseResponse{}
	vars := modelspec.Variables(s.spec)
	for i, name := range r.Names {
		at := uint32(0)
		if len(r.At) > 0 {
			at = r.At[i]
		}
		for _, b := range modelspec.BandsOf(vars, s.index, s.shards) {
			if b.Name == name && b.At == int(at) {
				res.Tensors = append(res.Tensors, rowwire.NamedTensor{Name: name, At: at, Values: modelspec.InitVariable(s.spec, vars[b.Variable])[b.At : b.At+b.Size]})
			}
		}
	}
	return res, s.lost()
}

func (s *fakeShard) Apply(ctx context.Context, r *rowwire.ApplyRequest) (*rowwire.ApplyResponse, error) {
	if err := s.lost(); err != nil {
		return nil, err
	}
	if r.From >= r.To {
		s.t.Errorf("shard %d: %d to %d of partition %d is learnt", s.index, r.From, r.To, r.Partition)
	}
	var ids []int64
	for _, t := range r.Tables {
		ids = append(ids, t.IDs...)
	}
	slices.Sort(ids)
	s.mu.Lock()
	for {
		if s.inOrder && r.Generation != s.gen {
			s.mu.Unlock()
			return nil, rowwire.Errorf(rowwire.WrongGeneration, "it is another")
		}
		if (s.held == "" || r.To <= s.targets[r.Partition]) && (!s.inOrder || r.Turn <= s.now.turn) {
			break
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, rowwire.Errorf(rowwire.Unavailable, "held")
		}
		s.mu.Lock()
	}
	next := s.now.next[r.Partition]
	refuse := func(c rowwire.Code) (*rowwire.ApplyResponse, error) {
		s.mu.Unlock()
		e := rowwire.Errorf(c, "recorded is %d, the range %d to %d", next, r.From, r.To)
		e.Next = next
		return nil, e
	}
	if s.refuses != nil {
		if c := s.refuses(r); c != 0 {
			return refuse(c)
		}
	}
	switch {
	case r.Epoch < s.epochs[r.Partition]:
		return refuse(rowwire.Fenced)
	case r.To <= next:
		s.mu.Unlock()
		return &rowwire.ApplyResponse{Next: next}, nil
	case r.From > next:
		return refuse(rowwire.Gap)
	case r.From < next:
		return refuse(rowwire.Overlap)
	case s.inOrder && r.Turn != s.now.turn:
		return refuse(rowwire.Overlap)
	}
	got := learntRange{r.Partition, r.From, r.To}
	s.checkIDs(r, got, ids)
	if r.Traceparent != "" {
		s.traces = append(s.traces, r.Traceparent)
	}
	if s.took != nil {
		s.took(r)
	}
	s.epochs[r.Partition] = r.Epoch
	s.now.next[r.Partition] = r.To
	s.now.ranges = append(s.now.ranges, got)
	s.now.turn++
	s.tell()
	s.mu.Unlock()
	if err := s.lost(); err != nil {
		return nil, err // learnt, but nobody hears of it
	}
	return &rowwire.ApplyResponse{Applied: true, Next: r.To}, nil
}

// checkIDs fails unless the ids of an apply are those of the records in its range. The caller
// holds mu.
func (s *fakeShard) checkIDs(r *rowwire.ApplyRequest, got learntRange, ids []int64) {
	if s.truth == nil {
		return
	}
	var mine []int64
	for _, fid := range s.truth(got) {
		if modelspec.ShardOf(fid, s.shards) == s.index {
			mine = append(mine, fid)
		}
	}
	if !slices.Equal(ids, mine) {
		s.t.Errorf("shard %d, %+v: learnt ids %v, the records have %v", s.index, got, ids, mine)
	}
	if all := s.truth(got); (len(r.Dense) > 0) != (len(all) > 0 && s.index < len(modelspec.Variables(s.spec))) {
		s.t.Errorf("shard %d, %+v: %d dense gradients for %d ids", s.index, got, len(r.Dense), len(all))
	}
}

func (s *fakeShard) Offsets(context.Context, *rowwire.OffsetsRequest) (*rowwire.OffsetsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &rowwire.OffsetsResponse{Epoch: s.epoch, Step: s.now.turn, Turn: s.now.turn, Generation: s.gen, Next: maps.Clone(s.now.next)}, nil
}

func (s *fakeShard) Scan(context.Context, *rowwire.ScanRequest) (*rowwire.ScanResponse, error) {
	return nil, rowwire.Errorf(rowwire.Invalid, "no rows here")
}

func (s *fakeShard) command(do func([]byte) error) bus.Handler {
	return func(_ context.Context, payload []byte) ([]byte, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := do(payload); err != nil {
			return nil, err
		}
		s.tell()
		return json.Marshal(shardcmd.State{Epoch: s.epoch, Turn: s.now.turn, Generation: s.gen, Next: s.now.next, Held: s.held})
	}
}

func (s *fakeShard) hold(payload []byte) error {
	var r shardcmd.HoldRequest
	if err := json.Unmarshal(payload, &r); err != nil {
		return err
	}
	if s.busy > 0 {
		s.busy--
		return &bus.CommandError{Code: "CONFLICT", Message: "the cut of another one holds the shard"}
	}
	if r.Chief == 0 {
		return &bus.CommandError{Code: "INVALID", Message: "the chief does not say which one it is"}
	}
	if s.held != "" && s.held != r.Cut {
		return &bus.CommandError{Code: "CONFLICT", Message: "held by " + s.held}
	}
	s.held = r.Cut
	s.holds++
	return nil
}

func (s *fakeShard) advance(payload []byte) error {
	var r shardcmd.AdvanceRequest
	if err := json.Unmarshal(payload, &r); err != nil {
		return err
	}
	if s.held != r.Cut {
		return &bus.CommandError{Code: "CONFLICT", Message: "not held"}
	}
	s.targets = r.Targets
	return nil
}

func (s *fakeShard) release(payload []byte) error {
	var r shardcmd.ReleaseRequest
	if err := json.Unmarshal(payload, &r); err != nil {
		return err
	}
	if s.held == r.Cut {
		s.held, s.targets = "", nil
	}
	return nil
}

func (s *fakeShard) rollback(payload []byte) error {
	var r shardcmd.RollbackRequest
	if err := json.Unmarshal(payload, &r); err != nil {
		return err
	}
	if r.Generation < s.gen {
		return nil
	}
	s.gen++
	s.rolled++
	s.now = s.recalled()
	return nil
}

// recalled is what the newest checkpoint that a fact names has of this shard, as a real one restores it: a
// snapshot of which the others have none is none. The caller holds mu.
func (s *fakeShard) recalled() memory {
	last, err := s.b.Log().Last(context.Background())
	if err == nil && last > 0 {
		err = s.b.Log().Follow(context.Background(), 1, last, func(r events.Recorded) error {
			e, _ := r.Event.(*training.Event)
			id := e.GetCheckpointSaved().GetCheckpoint().GetId()
			if to := e.GetJobRestored(); to != nil {
				id = to.GetCheckpoint()
			}
			if m, ok := s.kept[id]; ok {
				s.saved = m
			}
			return nil
		})
	}
	if err != nil {
		s.t.Error(err)
	}
	return s.saved.clone()
}

func (s *fakeShard) snapshot(_ context.Context, payload []byte) ([]byte, error) {
	var r shardcmd.SnapshotRequest
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != r.Cut {
		return nil, &bus.CommandError{Code: "CONFLICT", Message: "not held"}
	}
	if s.snapErr != nil {
		return nil, s.snapErr
	}
	sh := &checkpoint.Shard{Manifest: checkpoint.Manifest{
		Job: theJob, Checkpoint: r.Checkpoint, Shard: uint32(s.index), Shards: uint32(s.shards), Epoch: s.epoch,
		Turn: s.now.turn, Generation: s.gen, Offsets: maps.Clone(s.now.next),
	}, Dense: map[string]checkpoint.Variable{}}
	for i, v := range modelspec.Variables(s.spec) {
		if modelspec.VariableShard(i, s.shards) == s.index {
			sh.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: modelspec.InitVariable(s.spec, v)}
		}
	}
	name := fmt.Sprintf("ps_%d", s.index)
	path := filepath.Join(fmt.Sprintf("model.ckpt-%d", r.Checkpoint), name)
	m, err := checkpoint.WriteShard(filepath.Join(cmp.Or(s.disk, r.Dir), path), sh)
	if err != nil {
		return nil, err
	}
	if r.Export {
		if _, err := checkpoint.WriteShard(filepath.Join(cmp.Or(s.disk, r.Dir), cut.ExportsDir, name, strconv.FormatInt(r.Version, 10)), checkpoint.Export(sh)); err != nil {
			return nil, err
		}
	}
	if s.kept == nil {
		s.kept = map[int64]memory{}
	}
	s.kept[r.Checkpoint] = s.now.clone()
	if s.lies {
		if err := os.Truncate(filepath.Join(cmp.Or(s.disk, r.Dir), path, "manifest.json"), 9); err != nil {
			return nil, err
		}
	}
	_, size, err := checkpoint.Written(filepath.Join(cmp.Or(s.disk, r.Dir), path))
	if err != nil {
		return nil, err
	}
	return protojson.Marshal(&training.ShardFile{Shard: uint32(s.index), Path: path, Epoch: s.epoch, Step: s.now.turn, Hash: m.Hash, Crc32C: m.Files, Bytes: size})
}

func (s *fakeShard) check(ctx context.Context, payload []byte) ([]byte, error) {
	var r shardcmd.CheckRequest
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, err
	}
	var a shardcmd.CheckResponse
	for _, p := range r.Parts {
		v := shardcmd.Verdict{Shard: p.Shard}
		found, err := checkpoint.InspectIn(ctx, cmp.Or(s.disk, r.Dir), p.Path, r.Deep)
		if v.Offsets = found.Manifest.Offsets; err != nil {
			v.Fault = err.Error()
		}
		a.Parts = append(a.Parts, v)
	}
	return json.Marshal(a)
}

func (s *fakeShard) discard(_ context.Context, payload []byte) ([]byte, error) {
	var r shardcmd.DiscardRequest
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	deletes := s.deletes
	s.mu.Unlock()
	if deletes != nil {
		deletes()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full {
		return nil, &bus.CommandError{Code: "INTERNAL", Message: "the disk does not answer"}
	}
	dir := cmp.Or(s.disk, r.Dir)
	var errs []error
	for _, id := range r.Checkpoints {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("model.ckpt-%d", id))))
	}
	for _, v := range r.Exports {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, cut.ExportsDir, fmt.Sprintf("ps_%d", s.index), fmt.Sprint(v))))
	}
	return []byte("{}"), errors.Join(errs...)
}

// checkBooks fails unless the ranges tile every partition from 0 to its end, once.
func (s *fakeShard) checkBooks(ends []int64) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	at := make([]int64, len(ends))
	for _, r := range s.now.ranges {
		if r.From != at[r.Partition] {
			s.t.Errorf("shard %d, partition %d: %d to %d was learnt where %d was due", s.index, r.Partition, r.From, r.To, at[r.Partition])
		}
		at[r.Partition] = r.To
	}
	if !slices.Equal(at, ends) {
		s.t.Errorf("shard %d learnt up to %v, the topic ends at %v", s.index, at, ends)
	}
}

// startRegistry turns heartbeats into facts, as the replica-registry does.
func startRegistry(t *testing.T, b bus.Bus) {
	var mu sync.Mutex
	known := map[string]bool{}
	stop, err := b.Commands().Serve(t.Context(), bus.Service{
		BZID: bzid, Name: "pulse.registry", Version: "1.0.0", Description: "fake",
		Endpoints: map[string]bus.Handler{"heartbeat": func(ctx context.Context, payload []byte) ([]byte, error) {
			var h replica.Heartbeat
			if err := protojson.Unmarshal(payload, &h); err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			id := h.GetContainer().GetId()
			var e *container.Event
			switch {
			case h.GetLeaving():
				known[id] = false
				e = &container.Event{Body: &container.Event_Lost{Lost: &container.Lost{Reason: "it leaves"}}}
			case !known[id]:
				known[id] = true
				e = &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: h.GetContainer()}}}
			default:
				return []byte(`{"lease_ms":3000}`), nil
			}
			_, err := b.Log().Append(ctx, bus.Draft{Subject: events.Join(bzid, "container", id), Event: e, Expect: bus.Any})
			return []byte(`{"lease_ms":3000}`), err
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}
