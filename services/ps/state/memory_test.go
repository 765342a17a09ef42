package state

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
	"unsafe"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// A cut keeps one copy of what it writes: never a second one, not even while it writes a
// checkpoint and an export of it, and nothing once it is written. With MONOLITH_LONG a million
// rows are cut too; the figures of ADR 7 are what the test logs.
func TestTheMemoryOfACut(t *testing.T) {
	sizes := []int{100_000}
	if os.Getenv("MONOLITH_LONG") != "" {
		sizes = append(sizes, 1_000_000)
	}
	for _, n := range sizes {
		const dim, slack = 16, 4 << 20 // buffers, and what the collector may leave
		s := filled(t, n, dim)
		copied := int64(n) * int64(unsafe.Sizeof(table.Row{})+4*2*dim) // Adagrad has a slot for each weight
		ids := int64(n) * 8                                            // in order, which the table keeps until it changes
		lists := ids + int64(n)*int64(unsafe.Sizeof(table.Row{}))      // an export's rows share their values with the copy
		before := live()
		began := time.Now()
		c, err := s.CopyCut(shardcmd.SnapshotRequest{Cut: "c", Checkpoint: 1}, 1)
		took := time.Since(began)
		if err != nil {
			t.Fatal(err)
		}
		kept := live() - before
		if kept < copied*9/10 || kept > copied*11/10+ids+slack {
			t.Errorf("the copy of %d rows takes %d bytes, %d are one of each row", n, kept, copied)
		}
		most, allowed := int64(math.MaxInt64), copied*6/5+lists+slack
		for range 3 { // the least: what the collector of a busy machine is late with only adds
			dir := t.TempDir()
			began = time.Now()
			most = min(most, peak(t, func() {
				if _, err := checkpoint.CreateShard(filepath.Join(dir, "cut"), c); err != nil {
					t.Error(err)
				}
				if _, err := checkpoint.CreateShard(filepath.Join(dir, "export"), checkpoint.Export(c)); err != nil {
					t.Error(err)
				}
			})-before)
			if most <= allowed {
				break
			}
		}
		wrote := time.Since(began)
		if most < copied*9/10 || most > allowed {
			t.Errorf("while %d rows are written %d bytes are kept, %d are one of each row, and %d their lists", n, most, copied, lists)
		}
		runtime.KeepAlive(c)
		c = nil
		if left := live() - before; left > ids+slack {
			t.Errorf("%d bytes are kept of a cut of %d rows that has been written", left, n)
		}
		t.Logf("%d rows of %d: the table takes %.1f MB, the copy %.1f MB, %.1f MB at most while it is written; copied in %v, written in %v",
			n, dim, float64(s.tables["user"].Bytes())/1e6, float64(kept)/1e6, float64(most)/1e6, took, wrote)
		s.Suspend(rowwire.Errorf(rowwire.Unavailable, "the test is over"))
	}
}

// filled is a shard of n rows, held by cut c at its targets.
func filled(t *testing.T, n int, dim uint32) *Shard {
	t.Helper()
	spec := pstest.Learning()
	spec.Tables[0].Dim = dim
	s, err := New(Config{Job: job, Shards: 1}, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Load(nil); err != nil {
		t.Fatal(err)
	}
	s.Resume(1, 0)
	const batch = 10_000
	ids, values := make([]int64, batch), make([]float32, batch*int(dim))
	for at := 0; at < n; at += batch {
		for i := range ids {
			ids[i] = int64(at + i)
		}
		if err := s.tables["user"].Assign(ids, values, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	s.tables["user"].TakeTouched() // as the publication before a copy does
	if _, err := s.Hold(shardcmd.HoldRequest{Cut: "c"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Advance(t.Context(), shardcmd.AdvanceRequest{Cut: "c"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// live counts the bytes of the heap that are in use. Tables are not part of it.
func live() int64 {
	runtime.GC()
	runtime.GC()
	return objects()
}

func objects() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// peak is the most that was in use, or not yet collected, while f ran: little lies about
// uncollected meanwhile.
func peak(t *testing.T, f func()) (most int64) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	done, seen := make(chan struct{}), make(chan int64)
	go func() {
		tick, most := time.NewTicker(time.Millisecond), int64(0)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				most = max(most, objects())
			case <-done:
				seen <- most
				return
			}
		}
	}()
	f()
	close(done)
	return <-seen
}
