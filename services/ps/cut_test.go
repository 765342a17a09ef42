package ps

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// TestCutUnderAppliers cuts two shards while three partitions are learnt: each shard's
// rows must add up to exactly the offsets that its manifest names.
func TestCutUnderAppliers(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.Shards = 2
	var shards []*proc
	for i := range 2 {
		cfg.Shard = i
		shards = append(shards, w.start(cfg))
	}
	ctx, cancel := context.WithCancel(context.Background())
	var appliers sync.WaitGroup
	defer appliers.Wait()
	defer cancel()
	for part := range 3 {
		appliers.Go(func() {
			for from := int64(0); ctx.Err() == nil; from += 2 {
				for i, p := range shards { // a gradient of 2 for the 2 records of the range
					r := pstest.Teach(i, part, from, from+2, 2, int64(i+2*(int(from)%7)))
					if res, err := p.Apply(context.Background(), r); err != nil || !res.Applied {
						t.Errorf("apply: %+v, %v", res, err)
						return
					}
				}
			}
		})
	}
	var last int64
	for id := int64(1); id <= 5; id++ {
		c := w.checkpoint(2, id, 0)
		var offsets int64
		for _, next := range c.Offsets {
			offsets += next
		}
		if offsets < last {
			t.Errorf("checkpoint %d is behind the one before: %d after %d", id, offsets, last)
		}
		last = offsets
		for i := range 2 {
			s := w.readShard(c, i)
			if !maps.Equal(s.Manifest.Offsets, c.Offsets) {
				t.Errorf("checkpoint %d, shard %d: offsets %v, the cut is at %v", id, i, s.Manifest.Offsets, c.Offsets)
			}
			var sum float64
			for _, r := range s.Tables["user"] {
				sum -= float64(r.Values[0])
			}
			if int64(sum) != offsets {
				t.Errorf("checkpoint %d, shard %d: the rows hold %v records, the offsets say %d", id, i, sum, offsets)
			}
			export, err := checkpoint.ReadShard(filepath.Join(w.dir, "exported_models", fmt.Sprintf("ps_%d", i), fmt.Sprint(id)))
			if err != nil || len(export.Tables["user"]) != len(s.Tables["user"]) || export.Manifest.SyncSeq != s.Manifest.SyncSeq {
				t.Errorf("export %d of shard %d: %v", id, i, err)
			}
		}
	}
	if last == 0 {
		t.Error("nothing was learnt while cutting")
	}
}

func TestAdvanceLetsOnlyTheTargetsThrough(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	st := must[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: "c"})
	if st.Next[0] != 10 || st.Held != "c" {
		t.Fatalf("hold answers %+v", st)
	}
	within, beyond := make(chan error, 1), make(chan error, 1)
	go func() { _, err := p.Apply(context.Background(), pstest.Teach(0, 0, 10, 20, 1, 1)); within <- err }()
	go func() { _, err := p.Apply(context.Background(), pstest.Teach(0, 1, 0, 5, 1, 1)); beyond <- err }()
	targets := map[int32]int64{0: 20}
	st = must[shardcmd.State](w, 0, shardcmd.Advance, shardcmd.AdvanceRequest{Cut: "c", Targets: targets})
	if err := <-within; err != nil || !maps.Equal(st.Next, targets) {
		t.Fatalf("advance answers %+v, the apply within: %v", st, err)
	}
	again := must[shardcmd.State](w, 0, shardcmd.Advance, shardcmd.AdvanceRequest{Cut: "c", Targets: targets})
	if !maps.Equal(again.Next, targets) {
		t.Errorf("advance again answers %+v", again)
	}
	if _, err := call[shardcmd.State](w, 0, shardcmd.Advance, shardcmd.AdvanceRequest{Cut: "c", Targets: map[int32]int64{0: 30}}); pstest.Code(err) != "CONFLICT" {
		t.Errorf("other targets for the same cut: %v", err)
	}
	if _, err := call[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: "d"}); pstest.Code(err) != "CONFLICT" {
		t.Errorf("a second cut: %v", err)
	}
	select {
	case err := <-beyond:
		t.Fatalf("an apply beyond the targets went through: %v", err)
	default:
	}
	must[shardcmd.State](w, 0, shardcmd.Release, shardcmd.ReleaseRequest{Cut: "c"})
	if err := <-beyond; err != nil {
		t.Fatal(err)
	}
	must[shardcmd.State](w, 0, shardcmd.Release, shardcmd.ReleaseRequest{Cut: "c"}) // again
	if _, err := call[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: "c"}); pstest.Code(err) != "CONFLICT" {
		t.Errorf("holding a cut that is over: %v", err)
	}
	if _, err := call[shardcmd.State](w, 0, shardcmd.Release, shardcmd.ReleaseRequest{Cut: "never"}); pstest.Code(err) != "NOT_FOUND" {
		t.Errorf("releasing an unknown cut: %v", err)
	}
}

func TestTheNextChiefEndsTheCutOfTheLast(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	must[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: "old", Chief: 5})
	if _, err := call[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: "twin", Chief: 5}); pstest.Code(err) != "CONFLICT" {
		t.Errorf("another cut of the same chief: %v", err)
	}
	if st := must[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: "new", Chief: 6}); st.Held != "new" {
		t.Fatalf("the shard is held by %q", st.Held)
	}
	waits := make(chan error, 1)
	go func() { _, err := p.Apply(context.Background(), pstest.Teach(0, 0, 10, 20, 1, 1)); waits <- err }()
	if _, err := call[shardcmd.State](w, 0, shardcmd.Advance, shardcmd.AdvanceRequest{Cut: "old", Targets: map[int32]int64{0: 20}}); pstest.Code(err) != "CONFLICT" {
		t.Errorf("the old cut goes on: %v", err)
	}
	_, _ = call[shardcmd.State](w, 0, shardcmd.Release, shardcmd.ReleaseRequest{Cut: "old"}) // what the fenced chief does last
	if _, err := call[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: "old too", Chief: 5}); pstest.Code(err) != "CONFLICT" {
		t.Errorf("the fenced chief holds again: %v", err)
	}
	if st := must[shardcmd.State](w, 0, shardcmd.Offsets, struct{}{}); st.Held != "new" || st.Next[0] != 10 {
		t.Errorf("the fenced chief has loosened the new cut: %+v", st)
	}
	must[shardcmd.State](w, 0, shardcmd.Release, shardcmd.ReleaseRequest{Cut: "new"})
	if err := <-waits; err != nil {
		t.Fatal(err)
	}
	if _, err := call[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: "old too", Chief: 5}); pstest.Code(err) != "CONFLICT" {
		t.Errorf("the fenced chief holds once the shard is free: %v", err)
	}
}

func TestTargetsBehindWhatIsRecordedAreRefused(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))
	for name, targets := range map[string]map[int32]int64{"lower": {0: 5}, "partition left out": {}} {
		must[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: name})
		if _, err := call[shardcmd.State](w, 0, shardcmd.Advance, shardcmd.AdvanceRequest{Cut: name, Targets: targets}); pstest.Code(err) != "CONFLICT" {
			t.Errorf("%s: %v, want CONFLICT", name, err)
		}
		must[shardcmd.State](w, 0, shardcmd.Release, shardcmd.ReleaseRequest{Cut: name})
	}
}

func TestSnapshotIsRepeatableAndNeverReplacesASavedOne(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1))

	// A failed attempt left something under an id.
	stale := filepath.Join(w.dir, "model.ckpt-7", "ps_0")
	if err := os.MkdirAll(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stale, "manifest.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	must[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: "c"})
	snap := shardcmd.SnapshotRequest{Cut: "c", Checkpoint: 1}
	if _, err := call[*training.ShardFile](w, 0, shardcmd.Snapshot, snap); pstest.Code(err) != "CONFLICT" {
		t.Errorf("snapshot before advance: %v, want CONFLICT", err)
	}
	must[shardcmd.State](w, 0, shardcmd.Advance, shardcmd.AdvanceRequest{Cut: "c", Targets: map[int32]int64{0: 10}})
	for name, bad := range map[string]shardcmd.SnapshotRequest{
		"no id":          {Cut: "c"},
		"another folder": {Cut: "c", Checkpoint: 1, Dir: "/elsewhere"},
	} {
		if _, err := call[*training.ShardFile](w, 0, shardcmd.Snapshot, bad); pstest.Code(err) != "INVALID" {
			t.Errorf("%s: %v, want INVALID", name, err)
		}
	}
	if _, err := call[*training.ShardFile](w, 0, shardcmd.Snapshot, shardcmd.SnapshotRequest{Cut: "c", Checkpoint: 7}); pstest.Code(err) != "CONFLICT" {
		t.Errorf("an id that another attempt has written under: %v, want CONFLICT", err)
	}
	if text, err := os.ReadFile(filepath.Join(stale, "manifest.json")); err != nil || string(text) != "{" {
		t.Errorf("what the other attempt left is now %q, %v", text, err)
	}
	payload := func() string {
		b, err := w.bus.Commands().Call(soon(t), bzid, shardcmd.Command(job, 0, shardcmd.Snapshot), []byte(`{"cut":"c","checkpoint":1,"dir":"`+w.dir+`"}`))
		if err != nil {
			t.Fatalf("snapshot: %v", err)
		}
		return string(b)
	}
	first := payload()
	if again := payload(); again != first {
		t.Errorf("the same snapshot again answers %s, first %s", again, first)
	}
	if _, err := call[*training.ShardFile](w, 0, shardcmd.Snapshot, shardcmd.SnapshotRequest{Cut: "c", Checkpoint: 2}); pstest.Code(err) != "CONFLICT" {
		t.Errorf("another checkpoint from the same cut: %v, want CONFLICT", err)
	}
	must[shardcmd.State](w, 0, shardcmd.Release, shardcmd.ReleaseRequest{Cut: "c"})
	if again := payload(); again != first {
		t.Errorf("after the release it answers %s, first %s", again, first)
	}

	c := w.checkpoint(1, 2, 0)
	w.save(c)
	if err := p.lineage.Wait(soon(t), lastOf(t, w)); err != nil {
		t.Fatal(err)
	}
	must[shardcmd.State](w, 0, shardcmd.Hold, shardcmd.HoldRequest{Cut: "late"})
	must[shardcmd.State](w, 0, shardcmd.Advance, shardcmd.AdvanceRequest{Cut: "late", Targets: map[int32]int64{0: 10}})
	if _, err := call[*training.ShardFile](w, 0, shardcmd.Snapshot, shardcmd.SnapshotRequest{Cut: "late", Checkpoint: 2}); pstest.Code(err) != "CONFLICT" {
		t.Errorf("writing over a saved checkpoint: %v, want CONFLICT", err)
	}
}

func lastOf(t testing.TB, w *world) uint64 {
	t.Helper()
	n, err := w.bus.Log().Last(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
