package table

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/kernels/compress"
)

func newVersions(t testing.TB, b backend, cfg Config) *Versions {
	t.Helper()
	s, err := NewVersions(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.base.backend = b
	return s
}

// many is versions as one would write them first: a map of rows each.
type many struct {
	t     *testing.T
	set   *Versions
	line  []*Version
	rows  []map[int64]Row
	whole bool // the newest one is
	mine  map[int64]bool
}

func (m *many) compare() {
	ids := make([]int64, 40)
	for i := range ids {
		ids[i] = int64(i)
	}
	dim := m.set.Dim()
	for i, v := range m.line {
		out, tags := make([]float32, len(ids)*dim), make([]uint64, len(ids))
		for k := range out {
			out[k] = 9
		}
		found, err := v.Lookup(ids, out, tags)
		if err != nil || found != len(m.rows[i]) {
			m.t.Fatalf("version %d of %d: %d rows are found, %v; want %d", i, len(m.line), found, err, len(m.rows[i]))
		}
		for k, id := range ids {
			want := Row{Values: make([]float32, dim)}
			if r, ok := m.rows[i][id]; ok {
				want = r
			}
			if got := out[k*dim : (k+1)*dim]; !slices.Equal(got, want.Values) || tags[k] != want.Tag {
				m.t.Fatalf("version %d of %d, id %d: %v of %d, want %v of %d", i, len(m.line), id, got, tags[k], want.Values, want.Tag)
			}
		}
		var all []Row
		for after, more := int64(NoID), true; more; {
			var page []Row
			if page, more, err = v.Rows(after, 7); err != nil {
				m.t.Fatal(err)
			}
			if len(page) > 0 {
				after = page[len(page)-1].ID
			}
			all = append(all, page...)
		}
		if len(all) != len(m.rows[i]) || !slices.IsSortedFunc(all, func(a, b Row) int { return int(a.ID - b.ID) }) {
			m.t.Fatalf("version %d of %d has %d rows in pages, want %d", i, len(m.line), len(all), len(m.rows[i]))
		}
		for _, r := range all {
			if want := m.rows[i][r.ID]; !slices.Equal(r.Values, want.Values) || r.Tag != want.Tag || r.Tag != 0 && r.UnixSec != want.UnixSec {
				m.t.Fatalf("version %d, a page has %v, want %v", i, r, want)
			}
		}
	}
}

// step does what four bytes say.
func (m *many) step(op, which, a, b byte) {
	n := len(m.line)
	id, x := int64(a%40), float32(b%5)+1
	if m.set.base.cfg.SkipZero {
		x--
	}
	dim := m.set.Dim()
	values := make([]float32, dim)
	for i := range values {
		values[i] = x
	}
	i := 0
	if n > 0 {
		i = int(which) % n
	}
	switch op % 9 {
	case 0: // a successor
		if n == 8 {
			return
		}
		v, err := m.set.Next()
		if n > 0 && !m.whole {
			if !errors.Is(err, ErrLoading) {
				m.t.Fatalf("two versions are read at once: %v", err)
			}
			return
		}
		if err != nil {
			m.t.Fatal(err)
		}
		rows := map[int64]Row{}
		if n > 0 {
			for id, r := range m.rows[n-1] {
				rows[id] = r
			}
		}
		m.line, m.rows, m.whole, m.mine = append(m.line, v), append(m.rows, rows), false, map[int64]bool{}
	case 1, 2: // a row of its own
		if n == 0 || m.whole {
			return
		}
		r := Row{ID: id, Values: values, UnixSec: uint32(b)}
		if err := m.line[n-1].Restore([]Row{r}); err != nil {
			m.t.Fatal(err)
		}
		if old, ok := m.rows[n-1][id]; !ok || !slices.Equal(old.Values, values) {
			m.put(n-1, r)
		}
		m.mine[id] = true
	case 3:
		if n == 0 || m.whole {
			return
		}
		if err := m.line[n-1].Whole(); err != nil {
			m.t.Fatal(err)
		}
		for id := range m.rows[n-1] {
			if !m.mine[id] {
				delete(m.rows[n-1], id)
			}
		}
		m.whole = true
	case 4, 5, 6: // a delta: the same row may come to each version
		if n == 0 || i == n-1 && !m.whole {
			return
		}
		if err := m.line[i].Assign([]int64{id, id}, append(make([]float32, dim), values...), uint32(b%3), uint64(b%3)); err != nil {
			m.t.Fatal(err)
		}
		m.put(i, Row{ID: id, Values: values, UnixSec: uint32(b % 3), Tag: uint64(b % 3)})
	case 7:
		if n == 0 || i == n-1 && !m.whole {
			return
		}
		m.line[i].Remove([]int64{id, id + 1})
		delete(m.rows[i], id)
		delete(m.rows[i], id+1)
	case 8:
		if n == 0 {
			return
		}
		if last := m.line[i].Drop(); last != (n == 1) {
			m.t.Fatalf("the last of %d: %v", n, last)
		}
		if _, err := m.line[i].Lookup([]int64{1}, make([]float32, dim), nil); !errors.Is(err, ErrDropped) {
			m.t.Fatalf("a version that was dropped answers: %v", err)
		}
		if _, _, err := m.line[i].Rows(NoID, 1); !errors.Is(err, ErrDropped) {
			m.t.Fatalf("a version that was dropped has rows: %v", err)
		}
		if err := m.line[i].Assign([]int64{1}, values, 0, 0); !errors.Is(err, ErrDropped) {
			m.t.Fatalf("a version that was dropped is written: %v", err)
		}
		if i == n-1 {
			m.whole = true
		}
		m.line, m.rows = slices.Delete(m.line, i, i+1), slices.Delete(m.rows, i, i+1)
		if n == 1 { // nobody begins again in what is left
			m.set = newVersions(m.t, m.set.base.backend, m.set.base.cfg)
		}
	}
}

func (m *many) put(i int, r Row) {
	if m.set.base.cfg.SkipZero && almostZero(r.Values) {
		delete(m.rows[i], r.ID)
		return
	}
	m.rows[i][r.ID] = r
}

// Whatever is done to versions, each shows what it would if it had a table to itself.
func FuzzVersions(f *testing.F) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		ops := make([]byte, 4*(20+r.IntN(200)))
		for i := range ops {
			ops[i] = byte(r.Uint32())
		}
		f.Add(ops, uint8(seed))
	}
	f.Fuzz(func(t *testing.T, ops []byte, form uint8) {
		if len(ops) > 4000 {
			ops = ops[:4000]
		}
		cfg := Config{Name: "v", Dim: 3, Compressor: compress.FP32{}, Serving: true, SkipZero: form&1 != 0}
		if form&2 != 0 {
			cfg.Compressor = compress.FP16{}
		}
		all := runnable()
		m := &many{t: t, set: newVersions(t, all[int(form>>2)%len(all)], cfg), whole: true}
		for ; len(ops) >= 4; ops = ops[4:] {
			m.step(ops[0], ops[1], ops[2], ops[3])
			m.compare()
		}
	})
}

// While a successor is read, written, rolled back, followed and while versions are dropped, each version's
// readers see rows of that version alone. Every row's weights tell the version and all weights are alike.
func TestReadersOfVersions(t *testing.T) {
	for _, b := range runnable() {
		const rows, dim = 2000, 8
		s := newVersions(t, b, Config{Name: "v", Dim: dim, Compressor: compress.FP32{}, Serving: true})
		export := func(version int) []Row {
			out := make([]Row, rows)
			for id := range out {
				x := float32(0) // what all versions have
				if id%10 < 3 {
					x = float32(version)
				}
				out[id] = Row{ID: int64(id), Values: slices.Repeat([]float32{x}, dim)}
			}
			return out
		}
		var readers sync.WaitGroup
		var looked atomic.Int64
		read := func(v *Version, version float32, seed uint64) {
			r := rand.New(rand.NewPCG(seed, 2))
			ids, out := make([]int64, 64), make([]float32, 64*dim)
			for {
				for i := range ids {
					ids[i] = r.Int64N(rows)
				}
				found, err := v.Lookup(ids, out, nil)
				if errors.Is(err, ErrDropped) {
					return
				}
				if err != nil || found != len(ids) {
					t.Errorf("version %v: %d rows of %d, %v", version, found, len(ids), err)
					return
				}
				looked.Add(1)
				for i, id := range ids {
					want := float32(0)
					if id%10 < 3 {
						want = version
					}
					if got := out[i*dim : (i+1)*dim]; got[0] != want || slices.Min(got) != slices.Max(got) {
						t.Errorf("version %v, id %d: %v", version, id, got)
						return
					}
				}
			}
		}
		var line []*Version
		r := rand.New(rand.NewPCG(7, 3))
		for version := 1; version <= 24; version++ {
			v, err := s.Next()
			if err != nil {
				t.Fatal(err)
			}
			all := export(version)
			cut := rows
			if version%4 == 3 {
				cut = r.IntN(rows) // it cannot be read to its end
			}
			for from := 0; from < cut; from += 300 {
				if err := v.Restore(all[from:min(cut, from+300)]); err != nil {
					t.Fatal(err)
				}
			}
			if cut < rows {
				v.Drop()
				continue
			}
			if err := v.Whole(); err != nil {
				t.Fatal(err)
			}
			line = append(line, v)
			for k := range 2 {
				readers.Go(func() { read(v, float32(version), uint64(2*version+k)) })
			}
			// A delta that changes nothing of what a version shows but times and tags.
			for i, x := range line {
				if i == 0 {
					continue
				}
				if err := x.Assign([]int64{3, 13, 23}, make([]float32, 3*dim), uint32(version), uint64(version)); err != nil {
					t.Fatal(err)
				}
			}
			for before := looked.Load(); looked.Load() < before+20; {
				if t.Failed() {
					break
				}
				runtime.Gosched()
			}
			for len(line) > 4 {
				i := r.IntN(len(line))
				line[i].Drop()
				line = slices.Delete(line, i, i+1)
			}
		}
		for _, v := range line {
			v.Drop()
		}
		readers.Wait()
	}
}

// What versions have in common is there once: a successor costs the rows that are other in it, and one
// that follows the same deltas as its predecessor comes to cost nothing.
func TestVersionsShareRows(t *testing.T) {
	const rows, dim = 20_000, 16
	s := newVersions(t, chosen, Config{Name: "v", Dim: dim, Compressor: compress.FP32{}, Serving: true})
	export := func(other int) []Row {
		out := make([]Row, rows)
		for id := range out {
			out[id] = Row{ID: int64(id), Values: make([]float32, dim), UnixSec: 1}
			if id < other {
				out[id].Values[0] = 1
			}
		}
		return out
	}
	load := func(all []Row) *Version {
		v := must(s.Next())
		if err := errors.Join(v.Restore(all), v.Whole()); err != nil {
			t.Fatal(err)
		}
		return v
	}
	covered := func(v *Version) int {
		rows := v.top.Load().rows.Load()
		if rows == nil {
			return 0
		}
		return rows.Len()
	}
	first := load(export(0))
	second := load(export(500))
	if covered(first) != 500 || s.base.Len() != rows {
		t.Fatalf("%d rows are there twice, want 500", covered(first))
	}
	if grown := must(New(Config{Name: "v", Dim: dim, Compressor: compress.FP32{}, Serving: true, Capacity: 500})); first.top.Load().rows.Load().index() != grown.index() {
		t.Errorf("the index of 500 rows takes %d bytes, want %d", first.top.Load().rows.Load().index(), grown.index())
	}
	third := load(export(500))
	if covered(second) != 0 || s.base.Len() != rows {
		t.Fatalf("an equal version costs %d rows", covered(second))
	}
	ids, values := make([]int64, 700), make([]float32, 700*dim)
	for i := range ids {
		ids[i] = int64(i)
	}
	for _, v := range []*Version{second, first, third} {
		if err := v.Assign(ids, values, 5, 77); err != nil {
			t.Fatal(err)
		}
	}
	if covered(first) != 0 || covered(second) != 0 {
		t.Fatalf("versions that follow the same deltas differ in %d and %d rows", covered(first), covered(second))
	}
	if first.Drop() || third.Drop() || !second.Drop() {
		t.Error("the last version is the second")
	}
}

func TestVersionsRefuse(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"training": func(c *Config) { c.Serving = false }, "limits": func(c *Config) { c.MaxRows = 1 }, "bytes": func(c *Config) { c.MaxBytes = 1 },
		"lists": func(c *Config) { c.Track = true }, "no name": func(c *Config) { c.Name = "" },
	} {
		cfg := Config{Name: "v", Dim: 2, Compressor: compress.FP32{}, Serving: true}
		change(&cfg)
		if _, err := NewVersions(cfg); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	s := newVersions(t, chosen, Config{Name: "v", Dim: 2, Compressor: compress.FP32{}, Serving: true})
	v := must(s.Next())
	if err := errors.Join(v.Restore([]Row{{ID: 1, Values: []float32{1, 2}}}), v.Whole()); err != nil {
		t.Fatal(err)
	}
	w := must(s.Next())
	nan := float32(0)
	nan /= nan
	for name, err := range map[string]error{
		"too few numbers":  w.Assign([]int64{1, 2}, []float32{1, 2}, 0, 0),
		"no number":        w.Assign([]int64{1}, []float32{1, nan}, 0, 0),
		"reserved":         w.Assign([]int64{NoID}, []float32{1, 2}, 0, 0),
		"a reserved row":   w.Restore([]Row{{ID: NoID, Values: []float32{1, 2}}}),
		"a row too narrow": w.Restore([]Row{{ID: 3, Values: []float32{1}}}),
		"a row of NaN":     w.Restore([]Row{{ID: 3, Values: []float32{1, nan}}}),
	} {
		if err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := v.Lookup([]int64{1, 2}, make([]float32, 2), nil); err == nil {
		t.Error("room for fewer rows is taken")
	}
	if s.Bytes() < s.base.Bytes() {
		t.Error("a table is more than all of its versions")
	}
}
