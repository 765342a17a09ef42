package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services/trainer/internal/attempt"
)

// restoreAsAsked has the shards follow returns of the job, as real ones do: they come back elsewhere
// with what the checkpoint held.
func (w *world) restoreAsAsked() {
	f := follow.New(w.b.Log(), registry.Lineage, follow.Options{})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = f.Run(ctx) }()
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			changed := f.Changed()
			var to lineage.Restored
			f.Read(func(s lineage.State) { to = s.Jobs[theJob].Restored })
			for _, s := range w.shards {
				if to.Seq > s.restored {
					s.stop()
					s.mu.Lock()
					s.now, s.held, s.targets, s.restored = s.recalled(), "", nil, to.Seq
					s.tell()
					s.mu.Unlock()
					s.start()
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
	w.t.Cleanup(func() { stop(); <-done })
}

func (w *world) restore(body string) (map[string]int64, error) {
	w.t.Helper()
	reply, err := w.command("restore", body)
	if err != nil {
		return nil, err
	}
	var answer map[string]int64
	if err := json.Unmarshal(reply, &answer); err != nil {
		w.t.Fatalf("answer %s: %v", reply, err)
	}
	return answer, nil
}

// learntBehind2 runs a job of two partitions and shards that has learnt 100 offsets of each up to its checkpoint 2, and
// as many behind it.
func learntBehind2(t *testing.T) (*world, *running) {
	t.Helper()
	w := newWorld(t, 2, 2)
	w.restoreAsAsked()
	w.write(50)
	a := w.run(w.config("a", 0))
	w.learnt(0, 100)
	w.learnt(1, 100)
	w.checkpointNow(2)
	w.write(50)
	w.learnt(0, 200)
	w.learnt(1, 200)
	return w, a
}

// TestRestore: the job goes back to a checkpoint and learns what came after it again, each
// offset once by each shard, and the next checkpoint is of the new timeline.
func TestRestore(t *testing.T) {
	w, a := learntBehind2(t)
	w.checkpointNow(3)
	w.shards[0].mu.Lock()
	before := maps.Clone(w.shards[0].kept[2].next)
	w.shards[0].mu.Unlock()

	for body, code := range map[string]string{`{"checkpoint":77}`: "NOT_FOUND", `{"checkpoint":0}`: "NOT_FOUND", `{"chekpoint":2}`: "INVALID", ``: "NOT_FOUND"} {
		var refused *bus.CommandError
		if _, err := w.restore(body); !errors.As(err, &refused) || refused.Code != code {
			t.Errorf("restore %s: %v, want %s", body, err, code)
		}
	}
	answer, err := w.restore(`{"checkpoint":2,"reason":"it diverged"}`)
	if err != nil || answer["checkpoint"] != 2 || answer["export"] != 4 {
		t.Fatalf("answer %v, %v", answer, err)
	}
	readies := w.returns(uint64(answer["seq"]))
	for i, r := range readies {
		if !maps.Equal(r.GetOffsets(), before) {
			t.Errorf("shard %d came back at %v, checkpoint 2 is at %v", i, r.GetOffsets(), before)
		}
	}
	if len(readies) != 2 {
		t.Errorf("%d shards came back", len(readies))
	}
	w.learnt(0, 200)
	w.learnt(1, 200)
	for _, s := range w.shards {
		s.checkBooks([]int64{100, 100})
	}
	w.checkpointNow(5)
	a.stop(t)
	j := w.until("it is saved", func(j lineage.Job) bool { return j.LastID == 5 && len(j.Checkpoints) == 5 })
	var ids []int64
	for _, c := range j.Restorable() {
		ids = append(ids, c.GetId())
	}
	if !slices.Equal(ids, []int64{5, 4, 2, 1}) || len(j.Exports) == 0 || j.Exports[len(j.Exports)-1].V.GetVersion() != 4 {
		t.Errorf("restorable are %v, newest export %v", ids, j.Exports)
	}
}

// TestRestoreWithoutHealthyShards: the command is there although the chief, begun after
// the model diverged, waits for shards that answer.
func TestRestoreWithoutHealthyShards(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.restoreAsAsked()
	w.write(30)
	a := w.run(w.config("a", 0))
	w.learnt(0, 30)
	w.checkpointNow(2)
	a.stop(t)
	w.append(events.Join(bzid, "shard", shard.Aggregate(theJob, 0)), &shard.Event{Body: &shard.Event_HealthFailed{HealthFailed: &shard.HealthFailed{Reason: "the model has diverged", Epoch: 1}}})
	b := w.run(w.config("b", 1))
	var err error
	for unavailable := true; unavailable; unavailable = errors.Is(err, bus.ErrUnavailable) { // until b leads
		_ = retry.Sleep(t.Context(), attempt.Settle)
		_, err = w.restore(`{"checkpoint":1,"reason":"it diverged"}`)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.learnt(0, 30)
	w.shards[0].checkBooks([]int64{30})
	b.stop(t)
}

// checkpointNow makes a checkpoint, which is to have that id.
func (w *world) checkpointNow(id int64) {
	w.t.Helper()
	reply, err := w.command("checkpoint", `{}`)
	var answer struct{ Checkpoint int64 }
	if err == nil {
		err = json.Unmarshal(reply, &answer)
	}
	if err != nil || answer.Checkpoint != id {
		w.t.Fatalf("checkpoint %s, %v; want %d", reply, err, id)
	}
}

// returns are the ready facts that follow the jobRestored at seq, by shard.
func (w *world) returns(seq uint64) map[uint32]*shard.Ready {
	w.t.Helper()
	last, err := w.b.Log().Last(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	readies := map[uint32]*shard.Ready{}
	err = w.b.Log().Follow(w.t.Context(), 1, last, func(r events.Recorded) error {
		if e, ok := r.Event.(*shard.Event); ok && e.GetReady().GetRestored() == seq {
			readies[e.GetReady().GetShard()] = e.GetReady()
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return readies
}
