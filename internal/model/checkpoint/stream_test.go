package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/kernels/table"
)

// allRows is readTable into memory.
func allRows(r *tfrecord.Reader, t *TableInfo) (all []table.Row, err error) {
	err = readTable(r, t, func(rows []table.Row) error {
		all = append(all, rows...)
		return nil
	})
	return all, err
}

func bigShard(rows, dim int) *Shard {
	s := &Shard{Manifest: Manifest{Shards: 1, Tables: []TableInfo{{Name: "empty", Dim: 3}}}, Tables: map[string][]table.Row{}}
	for id := range rows {
		values := make([]float32, dim)
		values[0] = float32(id)
		s.Tables["t"] = append(s.Tables["t"], table.Row{ID: int64(id), Values: values, UnixSec: uint32(id)})
	}
	return s
}

// A shard that is streamed is the one that is read whole, in pieces, of which none is the whole.
func TestStreamIsTheShard(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "1")
	s := bigShard(10_000, 100)
	if _, err := WriteShard(dir, s); err != nil {
		t.Fatal(err)
	}
	var got []table.Row
	pieces, bytes := 0, int64(0)
	r := Reader{Through: func(r io.Reader) io.Reader { return counted{r, &bytes} }}
	begun := false
	read, err := r.Shard(dir,
		func(s *Shard) error { begun = len(s.Manifest.Tables) == 2 && got == nil; return nil },
		func(info *TableInfo, rows []table.Row) error {
			if !begun || info.Name != "t" || len(rows) > chunkFloats/100 {
				t.Errorf("%d rows of table %s at once, begun: %v", len(rows), info.Name, begun)
			}
			got, pieces = append(got, slices.Clone(rows)...), pieces+1
			clear(rows)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if pieces != 4 || len(got) != 10_000 || read.Tables != nil {
		t.Errorf("%d rows in %d pieces", len(got), pieces)
	}
	for i, row := range got {
		if want := s.Tables["t"][i]; row.ID != want.ID || row.UnixSec != want.UnixSec || !slices.Equal(row.Values, want.Values) {
			t.Fatalf("row %d is %v", i, row)
		}
	}
	whole, err := ReadShard(dir)
	if err != nil || whole.Manifest.Sum != read.Manifest.Sum || len(whole.Tables["t"]) != 10_000 {
		t.Errorf("read whole: %v", err)
	}
	if st, err := os.Stat(filepath.Join(dir, read.Manifest.Tables[1].File)); err != nil || bytes < st.Size() {
		t.Errorf("%d bytes came through, %v", bytes, err)
	}
}

// What takes rows is asked to forget them when the file turns out to be another one, and its own error
// is no word about the files.
func TestStreamThatEndsEarly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "1")
	if _, err := WriteShard(dir, bigShard(10_000, 100)); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	begin := func(*Shard) error { return nil }
	_, err := Reader{}.Shard(dir, begin, func(*TableInfo, []table.Row) error { return full })
	if !errors.Is(err, full) || errors.Is(err, ErrCorrupt) {
		t.Errorf("an error of who takes: %v", err)
	}
	if _, err := (Reader{}).Shard(dir, func(*Shard) error { return full }, nil); !errors.Is(err, full) {
		t.Errorf("an error at the beginning: %v", err)
	}
	m, err := ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, m.Tables[1].File)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-3] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	taken := 0
	_, err = Reader{}.Shard(dir, begin, func(_ *TableInfo, rows []table.Row) error { taken += len(rows); return nil })
	if !errors.Is(err, ErrCorrupt) || taken == 0 {
		t.Errorf("a broken end, after %d rows: %v", taken, err)
	}
	slow := errors.New("the disk is gone")
	_, err = Reader{Through: func(io.Reader) io.Reader { return broken{slow} }}.Shard(dir, begin, func(*TableInfo, []table.Row) error { return nil })
	if !errors.Is(err, slow) {
		t.Errorf("an error of the reader between: %v", err)
	}
}

// What a stream holds in memory does not grow with the rows.
func TestStreamIsBounded(t *testing.T) {
	peak := func(rows int) uint64 {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(rows))
		if _, err := WriteShard(dir, bigShard(rows, 64)); err != nil {
			t.Fatal(err)
		}
		before, most := liveHeap(), uint64(0)
		if _, err := (Reader{}).Shard(dir, func(*Shard) error { return nil }, func(*TableInfo, []table.Row) error {
			most = max(most, liveHeap())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return most - min(before, most)
	}
	if small, large := peak(8<<10), peak(64<<10); large > 2*small+1<<20 {
		t.Errorf("eight times the rows take %d bytes instead of %d", large, small)
	}
}

type counted struct {
	r io.Reader
	n *int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	*c.n += int64(n)
	return n, err
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// liveHeap is what the collector leaves.
func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
