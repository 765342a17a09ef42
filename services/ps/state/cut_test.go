package state

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

func TestAHeldShardReleasesItself(t *testing.T) {
	f, err := newSchema(Config{Job: job, Shards: 1}, pstest.Counting())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := newShard(f)
		if err := s.Load(nil); err != nil {
			t.Fatal(err)
		}
		s.Resume(1, 0)
		const timeout = 5 * time.Second
		hold := func(name string) error { _, err := s.Hold(shardcmd.HoldRequest{Cut: name}, timeout); return err }
		if err := hold("a"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			res, err := s.Apply(t.Context(), pstest.Teach(0, 0, 0, 10, 1, 1), "")
			if err != nil || !res.Applied || time.Since(began) != timeout {
				t.Errorf("the apply under hold: %+v, %v after %v; want it to go through after %v", res, err, time.Since(began), timeout)
			}
		})
		wg.Go(func() {
			_, err := s.Advance(t.Context(), shardcmd.AdvanceRequest{Cut: "a", Targets: map[int32]int64{7: 1}})
			if pstest.Code(err) != "CONFLICT" || time.Since(began) != timeout {
				t.Errorf("advance of the cut that timed out: %v after %v; want CONFLICT after %v", err, time.Since(began), timeout)
			}
		})
		time.Sleep(3 * time.Second)
		if err := hold("b"); pstest.Code(err) != "CONFLICT" {
			t.Errorf("a second cut while the first holds: %v", err)
		}
		if err := hold("a"); err != nil {
			t.Errorf("the same hold again: %v", err)
		}
		wg.Wait()
		if err := hold("a"); pstest.Code(err) != "CONFLICT" {
			t.Errorf("holding a cut that timed out: %v", err)
		}
		if _, err := s.Release(shardcmd.ReleaseRequest{Cut: "a"}); pstest.Code(err) != "CONFLICT" {
			t.Errorf("releasing a cut that timed out: %v", err)
		}
		if err := hold("b"); err != nil {
			t.Fatalf("the next cut: %v", err)
		}
		// The timer of a released cut must not end its successor.
		time.Sleep(2 * time.Second)
		if _, err := s.Release(shardcmd.ReleaseRequest{Cut: "b"}); err != nil {
			t.Fatal(err)
		}
		if err := hold("c"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		if st, _ := s.Now(); st.Held != "c" {
			t.Errorf("cut c was ended by the timer of b: %+v", st)
		}
		// Stopping ends the cut and lets those who wait go.
		wg.Go(func() {
			_, err := s.Apply(t.Context(), pstest.Teach(0, 0, 10, 20, 1, 1), "")
			if rowwire.CodeOf(err) != rowwire.Unavailable {
				t.Errorf("the apply that waited when the shard stopped: %v, want UNAVAILABLE", err)
			}
		})
		synctest.Wait()
		s.Suspend(rowwire.Errorf(rowwire.Unavailable, "stopping"))
		wg.Wait()
	})
}

func TestEndedCutsAreBounded(t *testing.T) {
	s := standing(t, Config{})
	for i := range 2 * keptCuts {
		s.Resume(1, 0)
		if _, err := s.Hold(shardcmd.HoldRequest{Cut: fmt.Sprint("many", i)}, time.Hour); err != nil {
			t.Fatal(err)
		}
		s.Suspend(rowwire.Errorf(rowwire.Unavailable, "stopping"))
	}
	if n := len(s.cuts.ended); n != keptCuts {
		t.Errorf("%d ended cuts are remembered, want %d", n, keptCuts)
	}
}

// A chief may hold the same cut again; one that has been followed may hold none.
func TestACutIsHeldAgain(t *testing.T) {
	s := standing(t, Config{})
	defer s.Suspend(rowwire.Errorf(rowwire.Unavailable, "the test is over"))
	hold := func(name string, chief uint64) error {
		_, err := s.Hold(shardcmd.HoldRequest{Cut: name, Chief: chief}, time.Hour)
		return err
	}
	long := strings.Repeat("x", 256)
	for _, tc := range []struct {
		name  string
		chief uint64
		code  string
	}{{"", 3, "INVALID"}, {long + "x", 3, "INVALID"}, {long, 3, ""}, {long, 3, ""}, {"b", 2, "CONFLICT"}, {"b", 3, "CONFLICT"}, {"b", 4, ""}, {"b", 4, ""}, {long, 4, "CONFLICT"}, {long, 5, "CONFLICT"}, {"b", 5, ""}} {
		err := hold(tc.name, tc.chief)
		if tc.code == "" && err != nil || tc.code != "" && pstest.Code(err) != tc.code {
			t.Errorf("chief %d holds %.3q…: %v, want %q", tc.chief, tc.name, err, tc.code)
		}
	}
}

// A snapshot is taken where every target is reached and none is passed, at its turn.
func TestWhenASnapshotMayBeTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		targets map[int32]int64
		turn    uint64
		says    string
	}{
		"at the targets":          {map[int32]int64{0: 10, 1: 0}, 0, ""},
		"at its turn":             {map[int32]int64{0: 10}, 3, ""},
		"at another turn":         {map[int32]int64{0: 10}, 4, "is at turn 3 here, not 4"},
		"without targets":         {nil, 0, "has no targets yet"},
		"before a target":         {map[int32]int64{0: 11}, 0, "recorded up to 10, 11 is the target"},
		"before another's target": {map[int32]int64{0: 10, 1: 1}, 0, "partition 1 is recorded up to 0, 1 is the target"},
		"beyond a target":         {map[int32]int64{0: 9}, 0, "beyond the target 9"},
		"beyond no target":        {map[int32]int64{}, 0, "beyond the target 0"},
	} {
		s := standing(t, Config{Deterministic: true})
		s.parts[0], s.turn = &partition{next: 10}, 3
		if _, err := s.Hold(shardcmd.HoldRequest{Cut: "c"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		s.cuts.now.targets = tc.targets
		c, err := s.atCut(shardcmd.SnapshotRequest{Cut: "c", Turn: tc.turn})
		if tc.says == "" && (err != nil || c == nil) || tc.says != "" && (pstest.Code(err) != "CONFLICT" || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
		if _, err := s.CopyCut(shardcmd.SnapshotRequest{Cut: "c", Turn: tc.turn}, 1); (err == nil) != (tc.says == "") {
			t.Errorf("%s: copied: %v", name, err)
		}
		s.Suspend(rowwire.Errorf(rowwire.Unavailable, "the test is over"))
	}
}

// A snapshot that was taken is told again under its cut, also once that has ended, and to no other.
func TestTakenSnapshotsAreToldAgain(t *testing.T) {
	s := standing(t, Config{})
	defer s.Suspend(rowwire.Errorf(rowwire.Unavailable, "the test is over"))
	file := &training.ShardFile{Path: "7/shard-0"}
	if _, err := s.Hold(shardcmd.HoldRequest{Cut: "a"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	check := func(when string, taken bool) {
		t.Helper()
		for _, tc := range []struct {
			cut        string
			checkpoint int64
			file       *training.ShardFile
			code       string
		}{{"a", 7, file, ""}, {"a", 8, nil, "CONFLICT"}, {"b", 7, nil, ""}} {
			if !taken {
				tc.file, tc.code = nil, ""
			}
			got, err := s.Taken(shardcmd.SnapshotRequest{Cut: tc.cut, Checkpoint: tc.checkpoint})
			if got != tc.file || tc.code == "" && err != nil || tc.code != "" && pstest.Code(err) != tc.code {
				t.Errorf("%s, cut %s, checkpoint %d: %v, %v", when, tc.cut, tc.checkpoint, got, err)
			}
		}
	}
	check("before", false)
	took := func(cut string, checkpoint int64) {
		s.Took(shardcmd.SnapshotRequest{Cut: cut, Checkpoint: checkpoint}, file)
	}
	took("b", 8) // which is not known here
	check("another's", false)
	took("a", 7)
	check("held", true)
	s.cuts.end("")
	check("released", true)
	e := s.cuts.ended["a"]
	e.file, e.saved = nil, 0
	s.cuts.ended["a"] = e
	check("released while it was written", false)
	took("b", 8)
	took("a", 7)
	check("written behind the end", true)
	if _, err := s.Hold(shardcmd.HoldRequest{Cut: "b", Chief: 1}, time.Hour); err != nil {
		t.Fatal(err)
	}
	check("behind the next one", true)
}

// A partition of which nothing was learnt yet has no offset, though it keeps the epoch of its trainer.
func TestOffsetsOfPartitions(t *testing.T) {
	s := standing(t, Config{})
	s.parts = map[int32]*partition{0: {next: 10, epoch: 3}, 1: {next: 1}, 2: {epoch: 3}}
	if got := s.offsets(); len(got) != 2 || got[0] != 10 || got[1] != 1 {
		t.Errorf("%v", got)
	}
}

// Of another shard's rows nothing is kept, in deltas of removals alone neither.
func TestRowsOfOtherShardsAreLeftOut(t *testing.T) {
	s := standing(t, Config{})
	s.shard, s.shards = 1, 2
	d := &delta.Delta{Rows: []*delta.Rows{
		{Ids: []uint64{0, 1, 2, 3}, Values: []byte("aabbccdd"), Removed: []uint64{4, 5}},
		{Removed: []uint64{6, 7}},
		{Ids: []uint64{8}, Values: []byte("ee")},
	}}
	s.keepOwn(d)
	for i, want := range []struct {
		ids, removed []uint64
		values       string
	}{{[]uint64{1, 3}, []uint64{5}, "bbdd"}, {nil, []uint64{7}, ""}, {nil, nil, ""}} {
		r := d.Rows[i]
		if !slices.Equal(r.Ids, want.ids) || !slices.Equal(r.Removed, want.removed) || string(r.Values) != want.values {
			t.Errorf("rows %d: %v", i, r)
		}
	}
}

// Who waits for the end of a cut goes on with it, and learns why where that does not come.
func TestWaitingForTheEndOfACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := standing(t, Config{})
		wait := func(ctx context.Context) <-chan error {
			ended := make(chan error, 1)
			go func() { ended <- s.Unheld(ctx) }()
			synctest.Wait()
			return ended
		}
		if err := <-wait(t.Context()); err != nil {
			t.Errorf("without a cut: %v", err)
		}
		if _, err := s.Hold(shardcmd.HoldRequest{Cut: "c"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		waiting := wait(t.Context())
		if len(waiting) > 0 {
			t.Errorf("during a cut: %v", <-waiting)
		}
		ctx, cancel := context.WithCancel(t.Context())
		late := wait(ctx)
		cancel()
		if err := <-late; pstest.Code(err) != "UNAVAILABLE" {
			t.Errorf("for too long: %v", err)
		}
		if _, err := s.Release(shardcmd.ReleaseRequest{Cut: "c"}); err != nil {
			t.Fatal(err)
		}
		if err := <-waiting; err != nil {
			t.Errorf("after the cut: %v", err)
		}
		if _, err := s.Hold(shardcmd.HoldRequest{Cut: "d"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		waiting = wait(t.Context())
		s.Suspend(rowwire.Errorf(rowwire.Unavailable, "stopping"))
		if err := <-waiting; rowwire.CodeOf(err) != rowwire.Unavailable {
			t.Errorf("of a shard that stops: %v", err)
		}
	})
}
