package ps

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// lesson is turn n of a fixed course over two partitions and two shards, which depends
// on what the shards answer: a lookup, and then gradients made of the answer.
func lesson(t *testing.T, shards []*proc, n int, generation uint64) {
	t.Helper()
	part, from := n%2, int64(n/2*3)
	for i, p := range shards {
		ids := []int64{int64(i + 2*(n%5)), int64(i + 2*(n%3+7))}
		l, err := p.Lookup(soon(t), &rowwire.LookupRequest{
			Model: job, Shard: uint32(i), Turn: uint64(n), Generation: generation, Tables: []rowwire.TableIDs{{Table: "user", IDs: ids}},
		})
		if err != nil {
			t.Fatalf("turn %d: %v", n, err)
		}
		d, err := p.Dense(soon(t), &rowwire.DenseRequest{Job: job, Shard: uint32(i), Turn: uint64(n), Generation: generation})
		if err != nil {
			t.Fatalf("turn %d: %v", n, err)
		}
		r := &rowwire.ApplyRequest{
			Job: job, Shard: uint32(i), Partition: int32(part), Epoch: 1, From: from, To: from + 3, RecordUnix: int64(1000 + n),
			Turn: uint64(n), Generation: generation,
		}
		grads := slices.Clone(l.Values[0])
		for j := range grads {
			grads[j] = grads[j]*0.5 + 0.01*float32(n+j+1)
		}
		r.Tables = []rowwire.TableGrads{{Table: "user", IDs: ids, Grads: grads}}
		for _, v := range d.Tensors {
			g := slices.Clone(v.Values)
			for j := range g {
				g[j] = g[j]*0.25 - 0.02*float32(n+1)
			}
			r.Dense = append(r.Dense, rowwire.NamedTensor{Name: v.Name, Values: g})
		}
		p.teach(r)
	}
}

func (w *world) deterministic(shards int) (Config, []*proc) {
	cfg := w.config()
	cfg.Model, cfg.Deterministic, cfg.Shards = "learning", true, shards
	var out []*proc
	for i := range shards {
		cfg.Shard = i
		out = append(out, w.start(cfg))
	}
	return cfg, out
}

// generation waits until the shard answers in a generation of at least g.
func (p *proc) generation(g uint64) shardcmd.State {
	p.t.Helper()
	st, err := p.st.Beyond(soon(p.t), g-1)
	if err != nil {
		p.t.Fatalf("generation %d does not come: %v", g, err)
	}
	return st
}

// TestACrashLeavesTheSameBits trains a course with a checkpoint, a lost shard and a
// roll-back in the middle, and compares it with a course without.
func TestACrashLeavesTheSameBits(t *testing.T) {
	const turns, cut, crash = 40, 14, 23
	hashes := func(crashes bool) (out []string) {
		w := newWorld(t)
		cfg, shards := w.deterministic(2)
		generation := uint64(1)
		for n := 0; n < turns; n++ {
			if n == cut && generation == 1 {
				w.save(w.checkpoint(2, 1, generation))
			}
			if n == crash && crashes && generation == 1 {
				// Shard 0 is lost at turn 23, shard 1 has learnt it half-way on.
				if err := shards[0].stop(); err != nil {
					t.Fatal(err)
				}
				cfg.Shard = 0
				shards[0] = w.start(cfg)
				for _, p := range shards {
					st := p.generation(2)
					if st.Turn != cut || st.Checkpoint != 1 || st.Generation != 2 {
						t.Fatalf("after the roll-back a shard stands at %+v, want turn %d", st, cut)
					}
				}
				generation, n = 2, cut
			}
			lesson(t, shards, n, generation)
		}
		c := w.checkpoint(2, 2, generation)
		for i, p := range shards {
			f := w.readShard(c, i)
			if f.Manifest.Turn != turns || f.Manifest.Generation != generation {
				t.Errorf("the manifest says turn %d of generation %d", f.Manifest.Turn, f.Manifest.Generation)
			}
			if got := p.hash(); got != f.Manifest.Hash {
				t.Errorf("the live shard hashes to %s, its checkpoint to %s", got, f.Manifest.Hash)
			}
			out = append(out, f.Manifest.Hash)
		}
		return out
	}
	twin, crashed := hashes(false), hashes(true)
	if !slices.Equal(twin, crashed) {
		t.Errorf("the crashed job ends at %v, its twin at %v", crashed, twin)
	}
	if twin[0] == twin[1] {
		t.Error("both shards hash alike: the test shows nothing")
	}
}

func TestRollbackOnRequest(t *testing.T) {
	w := newWorld(t)
	_, shards := w.deterministic(2)
	for n := range 4 {
		lesson(t, shards, n, 1)
	}
	ask := shardcmd.RollbackRequest{Generation: 1, Reason: "test"}
	for range 2 { // two trainers ask for the same thing
		for i := range shards {
			st := must[shardcmd.State](w, i, shardcmd.Rollback, ask)
			if st.Generation != 2 || st.Turn != 0 || len(st.Next) != 0 {
				t.Fatalf("after the roll-back: %+v", st)
			}
		}
	}
	ask.Generation = 9
	if _, err := call[shardcmd.State](w, 0, shardcmd.Rollback, ask); pstest.Code(err) != "CONFLICT" {
		t.Errorf("leaving a generation that is not there: %v, want CONFLICT", err)
	}
	_, err := shards[0].Lookup(soon(t), &rowwire.LookupRequest{Model: job, Generation: 1})
	if rowwire.CodeOf(err) != rowwire.WrongGeneration {
		t.Errorf("the old generation: %v, want WRONG_GENERATION", err)
	}
	lesson(t, shards, 0, 2)
	for _, p := range shards {
		if f := p.settled(); len(f.seen) == 0 {
			t.Error("nothing was published")
		}
	}

	plain := newWorld(t)
	plain.start(plain.config())
	if _, err := call[shardcmd.State](plain, 0, shardcmd.Rollback, ask); pstest.Code(err) != "INVALID" {
		t.Errorf("roll-back of a job that is not deterministic: %v, want INVALID", err)
	}
}

// TestShardsAgreeOnACheckpoint has another shard come back in the same generation from a
// newer cut: the one that is behind must take both to it.
func TestShardsAgreeOnACheckpoint(t *testing.T) {
	w := newWorld(t)
	_, shards := w.deterministic(2)
	for n := range 3 {
		lesson(t, shards, n, 1)
	}
	c := w.checkpoint(2, 1, 1)
	must[shardcmd.State](w, 0, shardcmd.Rollback, shardcmd.RollbackRequest{Generation: 1, Reason: "before the fact was stored"})
	shards[1].generation(2)
	w.save(c)
	// Shard 1's process says that it is in generation 2 already, but at checkpoint 1.
	if err := shards[0].fleet.Wait(soon(t), lastOf(t, w)); err != nil {
		t.Fatal(err)
	}
	var epoch uint64
	shards[0].fleet.Read(func(f fleet.State) { epoch = f.Shards[job][1].Ready.V.GetEpoch() })
	w.append("shard", shard.Aggregate(job, 1), &shard.Event{Body: &shard.Event_Ready{Ready: &shard.Ready{
		Job: job, Shard: 1, Shards: 2, Epoch: epoch + 1, RowsAddress: "127.0.0.1:1", Checkpoint: 1, Generation: 2,
	}}})
	if st := shards[0].generation(3); st.Checkpoint != 1 || st.Turn != 3 {
		t.Errorf("shard 0 stands at %+v, want checkpoint 1", st)
	}
	select {
	case <-shards[1].done: // its epoch was taken above
	case <-time.After(wait.Patience):
		t.Error("shard 1 runs on though its epoch was taken")
	}
}

// TestWaitersLearnOfARollback has lookups and applies wait for a turn that never comes.
func TestWaitersLearnOfARollback(t *testing.T) {
	w := newWorld(t)
	_, shards := w.deterministic(1)
	errs := make(chan error, 2)
	for i := range 2 {
		go func() {
			var err error
			if i == 0 {
				_, err = shards[0].Lookup(soon(t), &rowwire.LookupRequest{Model: job, Turn: 5, Generation: 1})
			} else {
				r := pstest.Teach(0, 0, 0, 1, 1, 1)
				r.Turn, r.Generation = 5, 1
				_, err = shards[0].Apply(soon(t), r)
			}
			errs <- err
		}()
	}
	must[shardcmd.State](w, 0, shardcmd.Rollback, shardcmd.RollbackRequest{Generation: 1})
	for range 2 {
		if code := rowwire.CodeOf(<-errs); code != rowwire.WrongGeneration && code != rowwire.Unavailable {
			t.Errorf("who waited got %v", code)
		}
	}
}

func ExampleConfig_checkpointPath() {
	c := Config{Shard: 1}
	fmt.Println(c.checkpointPath(3), c.exportPath(3))
	// Output: model.ckpt-3/ps_1 exported_models/ps_1/3
}
