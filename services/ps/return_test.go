package ps

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/kernels/vec"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// back appends that the job returns to a checkpoint, and returns the fact's sequence.
func (w *world) back(checkpoint int64, generation uint64) uint64 {
	w.t.Helper()
	end, err := w.bus.Deltas().Last(soon(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	return w.append("training", job, &training.Event{Body: &training.Event_JobRestored{JobRestored: &training.JobRestored{
		Checkpoint: checkpoint, Reason: "test", Generation: generation, SyncSeq: end,
	}}})
}

// follows waits until the shard answers as one that follows the return at seq.
func (p *proc) follows(seq uint64) (r *shard.Ready) {
	p.t.Helper()
	wait.For(p.t, fmt.Sprintf("shard %d follows its job back", p.cfg.Shard), func() bool {
		p.fleet.Read(func(f fleet.State) { r = f.Shards[job][uint32(p.cfg.Shard)].Ready.V })
		now, err := p.st.Now()
		return r.GetRestored() >= seq && err == nil && now.Epoch == r.GetEpoch()
	})
	return r
}

// TestAShardFollowsItsJobBack: rows, offsets and what followers hold are those of the
// checkpoint, after restarts too, until the new timeline has a checkpoint of its own.
func TestAShardFollowsItsJobBack(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1, 2))
	w.save(w.checkpoint(1, 1, 0))
	then := p.hash()
	p.teach(pstest.Teach(0, 0, 10, 20, 1, 2, 3))
	w.save(w.checkpoint(1, 2, 0))
	p.teach(pstest.Teach(0, 0, 20, 30, 1, 4))
	p.settled()
	must[shardcmd.AssignResponse](w, 0, shardcmd.Assign, pstest.Set("undone", []int64{1, 50}, 7, 7, 8, 8))

	if r := p.follows(w.back(1, 0)); r.GetCheckpoint() != 1 || r.GetOffsets()[0] != 10 || r.GetRows() != 2 {
		t.Errorf("the shard is ready as %v, want checkpoint 1", r)
	}
	if got := p.hash(); got != then {
		t.Errorf("the shard hashes to %s, checkpoint 1 to %s", got, then)
	}
	p.sameRows(p.settled())
	if _, err := p.Apply(soon(t), pstest.Teach(0, 0, 30, 40, 1, 4)); rowwire.CodeOf(err) != rowwire.Gap {
		t.Errorf("a range of the timeline that was left: %v, want a gap", err)
	}
	restart := func() {
		t.Helper()
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
		p = w.start(w.config())
	}
	if restart(); p.hash() != then {
		t.Error("a restart brings the timeline that was left back")
	}
	p.teach(pstest.Teach(0, 0, 10, 25, 2, 2, 9))
	w.save(w.checkpoint(1, 3, 0))
	now := p.hash()
	if restart(); p.hash() != now {
		t.Error("a restart passes over the new timeline's checkpoint")
	}
	p.sameRows(p.settled())
	if p.follows(w.back(2, 0)); p.st.Standing().Next[0] != 20 { // to what was left first
		t.Errorf("the shard stands at %v, want checkpoint 2", p.st.Standing().Next)
	}
	p.sameRows(p.settled())
}

// TestDeterministicShardsReturnTogether: all of them go to the checkpoint under one
// generation, whoever hears of it first, and learn on from its turn.
func TestDeterministicShardsReturnTogether(t *testing.T) {
	w := newWorld(t)
	_, shards := w.deterministic(2)
	var hashes []string
	for n := range 20 {
		lesson(t, shards, n, 1)
		if n == 5 || n == 11 {
			w.save(w.checkpoint(2, int64(1+n/10), 1))
		}
	}
	for _, p := range shards {
		hashes = append(hashes, p.hash())
	}
	seq := w.back(1, 2)
	generation := uint64(0)
	for _, p := range shards {
		p.follows(seq)
	}
	wait.For(t, "one generation", func() bool {
		generation = shards[0].st.Standing().Generation
		return generation >= 2 && shards[1].st.Standing().Generation == generation && shards[0].st.Standing().Turn == 6 && shards[1].st.Standing().Turn == 6
	})
	for n := 6; n < 20; n++ {
		lesson(t, shards, n, generation)
	}
	for i, p := range shards {
		if got := p.hash(); got != hashes[i] {
			t.Errorf("shard %d learnt the same again to %s, first to %s", i, got, hashes[i])
		}
	}
}

// failures are the shard's HealthFailed facts.
func (w *world) failures() (reasons []string) {
	w.t.Helper()
	err := w.bus.Log().Follow(soon(w.t), 1, lastOf(w.t, w), func(r events.Recorded) error {
		if e, ok := r.Event.(*shard.Event); ok && e.GetHealthFailed() != nil {
			reasons = append(reasons, e.GetHealthFailed().GetReason())
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return reasons
}

// TestADivergedModelIsAFact: what is not finite reaches neither followers nor a
// checkpoint; the shard says so as a fact and in its health, and comes back with its job.
func TestADivergedModelIsAFact(t *testing.T) {
	for name, diverge := range map[string]func(p *proc){
		"a row": func(p *proc) { p.teach(pstest.Teach(0, 0, 10, 20, 1e12, 1)) },
		"a variable": func(p *proc) {
			r := pstest.Teach(0, 0, 10, 20, 0)
			r.Dense = []rowwire.NamedTensor{{Name: "out/bias", Values: []float32{1e12}}}
			p.teach(r)
		},
		"what no delta carries": func(p *proc) { // the next cut finds it
			r := pstest.Teach(0, 0, 10, 20, 0)
			r.Tables = []rowwire.TableGrads{{Table: "movie", IDs: []int64{1}, Grads: []float32{1, 1, 1}}}
			p.teach(r)
			r.From, r.To = 20, 30 // the decay of such a row overflows its sum of squares alone
			p.teach(r)
			payload := shardcmd.HoldRequest{Cut: "c"}
			must[shardcmd.State](p.world, 0, shardcmd.Hold, payload)
			must[shardcmd.State](p.world, 0, shardcmd.Advance, shardcmd.AdvanceRequest{Cut: "c", Targets: map[int32]int64{0: 30}})
			_, err := call[map[string]any](p.world, 0, shardcmd.Snapshot, shardcmd.SnapshotRequest{Cut: "c", Checkpoint: 2})
			if err == nil || !strings.Contains(err.Error(), "not finite") {
				p.t.Errorf("a cut of what is not finite: %v", err)
			}
			if _, err := checkpoint.ReadManifest(filepath.Join(p.dir, "model.ckpt-2", "ps_0")); err == nil {
				p.t.Error("a checkpoint was written")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.declare(func(m *model.ModelSpec) {
				sgd := &model.Optimizer{Kind: &model.Optimizer_Sgd{Sgd: &model.Sgd{LearningRate: 1e30}}}
				m.Tables[0].Optimizer, m.DenseOptimizer = sgd, sgd
				m.Tables[1].Optimizer = &model.Optimizer{Kind: &model.Optimizer_Adagrad{Adagrad: &model.Adagrad{LearningRate: 1e30, WeightDecay: 1}}}
			})
			p := w.start(cfg)
			p.teach(pstest.Teach(0, 0, 0, 10, 1e-30, 1))
			w.save(w.checkpoint(1, 1, 0))
			then := p.hash()
			p.settled()
			diverge(p)
			wait.For(t, "the fact", func() bool { return len(w.failures()) == 1 })
			if why := w.failures()[0]; !strings.Contains(why, "diverged") || !strings.Contains(why, "trainer."+job+".restore") {
				t.Errorf("the fact says %q", why)
			}
			if got := fmt.Sprint(w.health.Problems()); !strings.Contains(got, divergence) {
				t.Errorf("health says %s", got)
			}
			if _, err := p.Lookup(soon(t), &rowwire.LookupRequest{Model: job}); rowwire.CodeOf(err) != rowwire.Unavailable {
				t.Errorf("a lookup in a diverged shard: %v", err)
			}
			if _, err := call[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: "late"}); err == nil || !strings.Contains(err.Error(), "diverged") {
				t.Errorf("a cut of a diverged shard: %v", err)
			}
			for id, row := range w.follow().rows["user"] {
				if !(vec.MaxAbs(row) <= math.MaxFloat32) {
					t.Errorf("row %d was published as %v", id, row)
				}
			}
			if p.follows(w.back(1, 0)); p.hash() != then {
				t.Error("back at the checkpoint the state is another")
			}
			for _, p := range w.health.Problems() {
				if p.Name != "heartbeats" { // there is no registry here
					t.Errorf("back at the checkpoint: health says %s", p)
				}
			}
			p.teach(pstest.Teach(0, 0, 10, 20, 1e-30, 1))
			p.sameRows(p.settled())
		})
	}
}

// TestACheckpointThatNoTableTakesIsPassedOver: like one that cannot be read.
func TestACheckpointThatNoTableTakesIsPassedOver(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	w.save(w.checkpoint(1, 1, 0))
	then := p.hash()
	p.teach(pstest.Teach(0, 0, 10, 20, 1, 2))
	c := w.checkpoint(1, 2, 0)
	bad := w.readShard(c, 0)
	bad.Tables["user"] = append([]table.Row{{ID: table.NoID, Values: []float32{1, 1}}}, bad.Tables["user"]...)
	m, err := checkpoint.WriteShard(filepath.Join(w.dir, c.GetShards()[0].GetPath()), bad)
	if err != nil {
		t.Fatal(err)
	}
	c.Shards[0].Hash = m.Hash
	w.save(c)
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p = w.start(w.config())
	if got := p.hash(); got != then || !slices.Equal(p.user(2), []float32{0, 0}) {
		t.Errorf("restored %s, checkpoint 1 has %s", got, then)
	}
}

// TestALostTailIsRefused: a stream that ends before what a checkpoint says it published
// would give the same sequences away twice, so the shard does not start and says why.
func TestALostTailIsRefused(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	p.settled()
	c := w.checkpoint(1, 1, 0)
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	fresh := newWorld(t)
	fresh.dir = w.dir
	fresh.save(c)
	err := fresh.server(fresh.config()).Run(soon(t))
	if err == nil || !strings.Contains(err.Error(), "lost its tail") || !strings.Contains(err.Error(), "nats stream purge MONOLITH_SYNC --seq") {
		t.Errorf("Run = %v", err)
	}
	if got := fmt.Sprint(fresh.health.Problems()); !strings.Contains(got, lostTail) {
		t.Errorf("health says %s", got)
	}
}

// What a checkpoint's folder holds is the shard, the job and the checkpoint that the fact
// names, or it is not restored.
func TestACheckpointOfSomethingElse(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.Shards, cfg.Shard = 2, 1
	s := w.server(cfg)
	right := checkpoint.Manifest{Job: job, Shard: 1, Shards: 2, Checkpoint: 3}
	for name, tc := range map[string]struct {
		change func(*checkpoint.Manifest)
		hash   string // what the fact adds to it
		says   string
	}{
		"the right one":      {func(*checkpoint.Manifest) {}, "", ""},
		"another job":        {func(m *checkpoint.Manifest) { m.Job = "other" }, "", `holds shard 1 of 2 of job "other" at checkpoint 3`},
		"another shard":      {func(m *checkpoint.Manifest) { m.Shard = 0 }, "", "holds shard 0 of 2"},
		"of more shards":     {func(m *checkpoint.Manifest) { m.Shards = 4 }, "", "holds shard 1 of 4"},
		"another checkpoint": {func(m *checkpoint.Manifest) { m.Checkpoint = 4 }, "", "at checkpoint 4"},
		"another attempt's":  {func(*checkpoint.Manifest) {}, "x", "from another attempt"},
	} {
		m := right
		tc.change(&m)
		out, err := checkpoint.WriteShard(filepath.Join(w.dir, "x"), &checkpoint.Shard{Manifest: m})
		if err != nil {
			t.Fatal(err)
		}
		hash := out.Hash + tc.hash
		c := &training.Checkpoint{Id: 3, Shards: []*training.ShardFile{{Shard: 0, Path: "none"}, {Shard: 1, Path: "x", Hash: hash}}}
		if _, err := s.read(t.Context(), c); (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
}
