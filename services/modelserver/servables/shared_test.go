package servables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// exportShards writes version n of a job in two shards, of ids below n, of which the odd ones are n.
func exportShards(t *testing.T, dir, job string, version, ids int64) {
	t.Helper()
	for k := range int64(2) {
		s := &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: job, Shard: uint32(k), Shards: 2, Tables: []checkpoint.TableInfo{{Name: "t", Dim: 2}}}, Tables: map[string][]table.Row{}}
		for id := k; id < ids; id += 2 {
			x := float32(id)
			if id%3 == 0 {
				x = float32(1000 * version)
			}
			s.Tables["t"] = append(s.Tables["t"], table.Row{ID: id, Values: []float32{x, -x}})
		}
		if _, err := checkpoint.WriteShard(filepath.Join(dir, fmt.Sprint("ps_", k), fmt.Sprint(version)), s); err != nil {
			t.Fatal(err)
		}
	}
}

// shows compares what g has with what was exported.
func shows(t *testing.T, g *servable, version, ids int64) {
	t.Helper()
	h := rows.NewHandler(func(string, uint32) []*rows.Shard { return []*rows.Shard{g.ps} })
	all, err := h.Scan(t.Context(), &rowwire.ScanRequest{Table: "t", After: math.MinInt64})
	if err != nil || int64(len(all.IDs)) != ids {
		t.Fatalf("version %d has %d rows, %v; want %d", version, len(all.IDs), err, ids)
	}
	for i, id := range all.IDs {
		x := float32(id)
		if id%3 == 0 {
			x = float32(1000 * version)
		}
		if !slices.Equal(all.Values[2*i:2*i+2], []float32{x, -x}) {
			t.Fatalf("version %d, id %d: %v", version, id, all.Values[2*i:2*i+2])
		}
	}
}

// Versions of one job's exports share rows, and each is the one that was exported all the same: while the
// next is read, when that turns out to be broken, and when others go, in any order.
func TestVersionsOnOneRowSet(t *testing.T) {
	dir := t.TempDir()
	r := newReads(1<<30, 0)
	load := func(version int64) (*servable, error) {
		// One serving shard of two exported ones.
		return r.loadPS(t.Context(), "m", filepath.Join(dir, "ps_0"), 0, version, "", target{numPS: 1})
	}
	sizes := map[int64]int64{1: 600, 2: 700, 4: 300, 5: 600}
	held := map[int64]*servable{}
	for _, version := range []int64{1, 2, 3, 4, 5} {
		exportShards(t, dir, "j", version, max(sizes[version], 500))
		if version == 3 {
			m, err := checkpoint.ReadManifest(filepath.Join(dir, "ps_1", "3"))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "ps_1", "3", m.Tables[0].File)
			if err := os.Truncate(path, 3000); err != nil {
				t.Fatal(err)
			}
			if _, err := load(3); failed(err).code != codes.DataLoss {
				t.Fatalf("a broken export: %v", err)
			}
		} else if g, err := load(version); err != nil {
			t.Fatal(err)
		} else {
			held[version], sizes[version] = g, max(sizes[version], 500)
		}
		for v, g := range held {
			shows(t, g, v, sizes[v])
		}
	}
	for v, g := range held {
		if g.ps.Shared != held[1].ps.Shared {
			t.Errorf("version %d shares nothing", v)
		}
	}
	exportShards(t, dir, "k", 6, 50)
	other, err := load(6)
	if err != nil {
		t.Fatal(err)
	}
	if shows(t, other, 6, 50); other.ps.Shared == held[1].ps.Shared || len(r.rowSets.all) != 2 {
		t.Error("another job's export is in the same row set")
	}
	other.release()
	for _, gone := range slices.Collect(maps.Keys(held)) {
		g := held[gone]
		delete(held, gone)
		g.release()
		if _, err := g.ps.Find([]rowwire.TableIDs{{Table: "t", IDs: []int64{1}}}); err == nil {
			t.Error("a version that was released answers")
		}
		for v, g := range held {
			shows(t, g, v, sizes[v])
		}
	}
	if len(r.rowSets.all) != 0 {
		t.Errorf("%d row sets are left", len(r.rowSets.all))
	}
}

// One version of a shard is read at a time; who waits for that gives up with its wish.
func TestVersionsAreReadInTurns(t *testing.T) {
	dir := t.TempDir()
	exportShards(t, dir, "j", 1, 10)
	r := newReads(1<<30, 0)
	set, leave := r.rowSets.enter(sharing{"m", "j", 0, 2})
	defer leave()
	if !set.turn.TryAcquire(1) {
		t.Fatal("nobody reads")
	}
	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan error)
	go func() {
		_, err := r.loadPS(ctx, "m", filepath.Join(dir, "ps_0"), 0, 1, "", target{})
		read <- err
	}()
	select {
	case err := <-read:
		t.Fatalf("two versions are read at once: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	if err := <-read; !errors.Is(err, context.Canceled) {
		t.Errorf("a version that nobody wants: %v", err)
	}
	set.turn.Release(1)
	g, err := r.loadPS(t.Context(), "m", filepath.Join(dir, "ps_0"), 0, 1, "", target{})
	if err != nil {
		t.Fatal(err)
	}
	g.release()
}

// What is not found any more is released once nobody has asked for it in so long, or the server stops.
func TestLettingGoWaitsForWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := func(g *servable) bool {
			_, err := g.ps.Find([]rowwire.TableIDs{{Table: "t", IDs: []int64{1}}})
			return err != nil
		}
		dir := t.TempDir()
		exportShards(t, dir, "j", 1, 10)
		r := newReads(1<<30, 0)
		s := newManager(nil, 5*time.Second, nil)
		read := func() *servable {
			g, err := r.loadPS(t.Context(), "m", filepath.Join(dir, "ps_0"), 0, 1, "", target{numPS: 1})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		g := read()
		s.letGo(t.Context(), g)
		time.Sleep(4 * time.Second)
		if released(g) { // which asks
			t.Error("released before its time")
		}
		time.Sleep(4 * time.Second)
		if synctest.Wait(); released(g) {
			t.Error("released though somebody asked 4 s ago")
		}
		time.Sleep(6 * time.Second)
		if synctest.Wait(); !released(g) {
			t.Error("not released though nobody asked for 6 s")
		}
		ctx, stop := context.WithCancel(t.Context())
		h := read()
		s.letGo(ctx, h)
		stop()
		if synctest.Wait(); !released(h) {
			t.Error("not released at the stop")
		}
		s.lives.Wait()
	})
}

// Rows that two have go with the later one; what has gone is read again.
func TestRowsOfTwo(t *testing.T) {
	dir := t.TempDir()
	exportShards(t, dir, "j", 1, 10)
	r := newReads(1<<30, 0)
	s := &shared{read: map[exportLocation]*reading{}}
	load := func() *servable {
		g, err := s.load(exportLocation{filepath.Join(dir, "ps_0"), 1}, func() (*servable, error) {
			return r.loadPS(t.Context(), "m", filepath.Join(dir, "ps_0"), 0, 1, "", target{numPS: 1})
		})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	a, b := load(), load()
	if a != b {
		t.Fatal("the rows are there twice")
	}
	a.release()
	shows(t, b, 1, 10)
	b.release()
	c := load()
	if c == b {
		t.Fatal("rows that went are handed out")
	}
	shows(t, c, 1, 10)
	c.release()
}
