package servables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/modelserver/entry"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

func TestWhichExportsHoldAShard(t *testing.T) {
	for _, tc := range [][3]int{{12, 8, 4}, {8, 12, 4}, {5, 0, 5}, {0, 5, 5}, {7, 7, 7}, {3, 5, 1}} {
		if got := gcd(tc[0], tc[1]); got != tc[2] {
			t.Errorf("gcd(%d, %d) = %d", tc[0], tc[1], got)
		}
	}
	if got := exportDirs("/models/ps_0", 7, "", 1); !slices.Equal(got, []string{"/models/ps_1/7"}) {
		t.Errorf("beside the sub-model: %q", got)
	}
	if got := exportDirs("/models/ps_0", 7, "/models", 1); !slices.Equal(got, []string{"/models/ps_1/7"}) {
		t.Errorf("the same place twice: %q", got)
	}
	if got := exportDirs("/models/ps_0", 7, "/elsewhere", 1); !slices.Equal(got, []string{"/models/ps_1/7", "/elsewhere/ps_1/7"}) {
		t.Errorf("and where the plan says: %q", got)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, ok := firstDir([]string{filepath.Join(dir, "none"), filepath.Join(dir, "file"), dir}); !ok || got != dir {
		t.Errorf("the first folder is %q", got)
	}
	if _, ok := firstDir([]string{filepath.Join(dir, "none"), filepath.Join(dir, "file")}); ok {
		t.Error("a file is a folder")
	}
}

// An export of some shards is read into fewer, as many, and more serving shards.
func TestShardsOfAnExport(t *testing.T) {
	dir := t.TempDir()
	const exported = 4
	for j := range exported {
		s := &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: "j", Shard: uint32(j), Shards: exported, SyncSeq: uint64(10 + j), Epoch: uint64(j), Step: uint64(j)},
			Tables: map[string][]table.Row{"t": nil}}
		for id := range int64(48) {
			if modelspec.ShardOf(id, exported) == j {
				s.Tables["t"] = append(s.Tables["t"], table.Row{ID: id, Values: []float32{float32(id)}})
			}
		}
		if _, err := checkpoint.WriteShard(filepath.Join(dir, fmt.Sprint("ps_", j), "1"), s); err != nil {
			t.Fatal(err)
		}
	}
	r := newReads(1<<30, 0)
	for _, served := range []int{0, 1, 2, 3, 4, 6, 8} {
		shards := served
		if served == 0 {
			shards = exported
		}
		seen := map[int64]bool{}
		for k := range shards {
			g, err := r.loadPS(t.Context(), "m", filepath.Join(dir, fmt.Sprint("ps_", k)), k, 1, "", target{numPS: served})
			if err != nil {
				t.Fatalf("shard %d of %d: %v", k, served, err)
			}
			least := uint64(math.MaxUint64)
			for j, seq := range g.contained {
				least = min(least, seq)
				if seq != uint64(10+j) || g.epochs[j] != uint64(j) || g.steps[j] != uint64(j) {
					t.Errorf("shard %d of %d holds %d up to %d", k, served, j, seq)
				}
				if shards == exported && int(j) != k {
					t.Errorf("shard %d of %d was read from %d", k, served, j)
				}
			}
			if len(g.dropped) != 0 {
				t.Errorf("shard %d of %d has left out %v", k, served, g.dropped)
			}
			if g.syncSeq != least || g.ps.Shards != shards || g.ps.Shard != k {
				t.Errorf("shard %d of %d goes on from %d, want %d", k, served, g.syncSeq, least)
			}
			all, err := rows.NewHandler(func(string, uint32) []*rows.Shard { return []*rows.Shard{g.ps} }).Scan(t.Context(), &rowwire.ScanRequest{Table: "t", After: math.MinInt64})
			if err != nil {
				t.Fatal(err)
			}
			for i, id := range all.IDs {
				if seen[id] || modelspec.ShardOf(id, shards) != k || all.Values[i] != float32(id) {
					t.Errorf("row %d with %v on shard %d of %d", id, all.Values[i], k, shards)
				}
				seen[id] = true
			}
		}
		if len(seen) != 48 {
			t.Errorf("%d of 48 rows are on %d shards", len(seen), shards)
		}
		if _, err := r.loadPS(t.Context(), "m", filepath.Join(dir, "ps_0"), shards, 1, "", target{numPS: served}); failed(err).code != codes.InvalidArgument {
			t.Errorf("shard %d of %d: %v", shards, served, err)
		}
	}
}

// An export may claim up to so many shards, and holds the one that its folder says.
func TestWhatAnExportClaims(t *testing.T) {
	r := newReads(1<<30, 0)
	put := func(dir string, shard, shards uint32) {
		t.Helper()
		if _, err := checkpoint.WriteShard(dir, &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: "j", Shard: shard, Shards: shards}}); err != nil {
			t.Fatal(err)
		}
	}
	for shards, ok := range map[uint32]bool{1: true, rows.MaxShards: true, rows.MaxShards + 1: false} {
		dir := t.TempDir()
		put(filepath.Join(dir, "ps_0", "1"), 0, shards)
		if _, err := r.loadPS(t.Context(), "m", filepath.Join(dir, "ps_0"), 0, 1, "", target{}); (err == nil) != ok {
			t.Errorf("rows of %d shards: %v", shards, err)
		}
		e := &checkpoint.Entry{Spec: modelspec.MovieRanking(), Version: 1, Job: "j", Shards: shards, Dense: map[string]checkpoint.Variable{}}
		for _, v := range modelspec.Variables(e.Spec) {
			e.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: modelspec.InitVariable(e.Spec, v)}
		}
		if err := checkpoint.WriteEntry(filepath.Join(dir, "entry", "1"), e); err != nil {
			t.Fatal(err)
		}
		for _, over := range []int{0, 1} { // as many serving shards as were exported, or as are planned
			if _, err := r.loadEntry(t.Context(), "m", filepath.Join(dir, "entry"), 1, target{numPS: over}); (err == nil) != ok {
				t.Errorf("an entry of %d shards over %d: %v", shards, over, err)
			}
		}
	}
	for name, tc := range map[string]struct {
		shard, shards uint32 // that lie where shard 1 of 2 should
		ok            bool
	}{"it": {1, 2, true}, "another shard": {0, 2, false}, "of another number": {1, 3, false}} {
		dir := t.TempDir()
		put(filepath.Join(dir, "ps_0", "1"), 0, 2)
		put(filepath.Join(dir, "ps_1", "1"), tc.shard, tc.shards)
		_, err := r.loadPS(t.Context(), "m", filepath.Join(dir, "ps_0"), 0, 1, "", target{numPS: 1})
		if (err == nil) != tc.ok || err != nil && !strings.Contains(err.Error(), "copy the export again") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The fact of an export is believed of the files that it was written of alone.
func TestTheFactOfTheseFiles(t *testing.T) {
	job := lineage.Job{
		Exports: []events.JSON[*training.ModelExported]{{V: &training.ModelExported{Version: 1, SyncSeq: 9}}, {V: &training.ModelExported{Version: 2, SyncSeq: 20}}},
		Checkpoints: []events.JSON[*training.Checkpoint]{{V: &training.Checkpoint{Id: 2, Shards: []*training.ShardFile{
			{Shard: 0, SyncSeq: 11, Epoch: 3, Step: 5}, {Shard: 1, SyncSeq: 12, Epoch: 4, Step: 6}}}}},
	}
	scores := func(seq uint64) *servable { return &servable{entry: &entry.Model{}, syncSeq: seq} }
	sparse := func(seq, epoch, step uint64) *servable {
		return &servable{ps: &rows.Shard{}, syncSeq: 1, contained: map[uint32]uint64{1: seq}, epochs: map[uint32]uint64{1: epoch}, steps: map[uint32]uint64{1: step}}
	}
	third := sparse(12, 4, 6)
	third.contained[2] = 12
	for name, tc := range map[string]struct {
		n    int64
		g    *servable
		want bool
	}{
		"an entry": {2, scores(20), true}, "of another attempt": {2, scores(19), false}, "no fact": {3, scores(20), false}, "of another version": {1, scores(20), false},
		"rows": {2, sparse(12, 4, 6), true}, "of another sequence": {2, sparse(13, 4, 6), false}, "of another epoch": {2, sparse(12, 5, 6), false}, "of another step": {2, sparse(12, 4, 7), false},
		"a shard that the fact lacks": {2, third, false}, "rows without a checkpoint": {1, sparse(12, 4, 6), false}, "rows without a fact": {3, sparse(12, 4, 6), false},
	} {
		if fact := recorded(job, tc.n, tc.g); (fact != nil) != tc.want || fact != nil && fact.GetVersion() != tc.n {
			t.Errorf("%s: %v", name, fact)
		}
	}
}

// One folder alone may always be read, and gives back what it took.
func TestReadsAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, together := range map[int64]bool{50: false, 100: false, 199: false, 200: true} {
		r := newReads(limit, 0)
		done, err := r.take(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		second := r.sem.TryAcquire(100)
		if second != together {
			t.Errorf("a second folder within %d bytes: %v", limit, second)
		}
		if second {
			r.sem.Release(100)
		}
		done()
		if done, err = r.take(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		done()
	}
}

// Reading waits for its share of --load-bytes; a version that is not wanted any more
// leaves the queue.
func TestReadsAreBoundedByBytes(t *testing.T) {
	dir := t.TempDir()
	spec := modelspec.MovieRanking()
	e := &checkpoint.Entry{Spec: spec, Version: 1, Job: "job", Shards: 1, Dense: map[string]checkpoint.Variable{}}
	for _, v := range modelspec.Variables(spec) {
		e.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: modelspec.InitVariable(spec, v)}
	}
	if err := checkpoint.WriteEntry(filepath.Join(dir, "1"), e); err != nil {
		t.Fatal(err)
	}
	size, err := checkpoint.DirSize(filepath.Join(dir, "1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, limit := range map[string]int64{"one at a time": size + size/2, "one that is greater than all": size / 2} {
		r := newReads(limit, 0)
		done, err := r.take(t.Context(), filepath.Join(dir, "1"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		loaded := make(chan error, 1)
		go func() {
			_, err := r.loadEntry(ctx, "m", dir, 1, target{})
			loaded <- err
		}()
		select {
		case err := <-loaded:
			t.Fatalf("%s: a second load did not wait: %v", name, err)
		case <-time.After(20 * time.Millisecond):
		}
		cancel()
		if err := <-loaded; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a load that nobody waits for: %v", name, err)
		}
		done()
		if _, err := r.loadEntry(t.Context(), "m", dir, 1, target{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// All loads together keep to a rate, after what may come at once; one that nobody waits for ends.
func TestReadsKeepToARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReads(1<<30, 1000)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		var two errgroup.Group
		for range 2 {
			two.Go(func() error {
				got, err := io.ReadAll(r.reader(ctx).Through(bytes.NewReader(make([]byte, 2000))))
				if len(got) != 2000 {
					t.Errorf("%d bytes came", len(got))
				}
				return err
			})
		}
		if err := two.Wait(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 3900*time.Millisecond || took > 4*time.Second {
			t.Errorf("4,000 bytes at 1,000 a second took %v", took)
		}
		late := make(chan error)
		go func() {
			_, err := io.ReadAll(r.reader(ctx).Through(bytes.NewReader(make([]byte, 2000))))
			late <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-late; !errors.Is(err, context.Canceled) {
			t.Errorf("a load that nobody waits for: %v", err)
		}
	})
	if newReads(1, 0).reader(t.Context()).Through != nil {
		t.Error("without a rate files are read as they are")
	}
}
