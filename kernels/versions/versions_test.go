package versions

import (
	"errors"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/table"
)

func newTable(t testing.TB, cfg table.Config) *Table {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// many is versions as one would write them first: a map of rows each.
type many struct {
	t     *testing.T
	set   *Table
	line  []*Version
	rows  []map[int64]table.Row
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
			want := table.Row{Values: make([]float32, dim)}
			if r, ok := m.rows[i][id]; ok {
				want = r
			}
			if got := out[k*dim : (k+1)*dim]; !slices.Equal(got, want.Values) || tags[k] != want.Tag {
				m.t.Fatalf("version %d of %d, id %d: %v of %d, want %v of %d", i, len(m.line), id, got, tags[k], want.Values, want.Tag)
			}
		}
		var all []table.Row
		for after, more := int64(table.NoID), true; more; {
			var page []table.Row
			if page, more, err = v.Rows(after, 7); err != nil {
				m.t.Fatal(err)
			}
			if len(page) > 0 {
				after = page[len(page)-1].ID
			}
			all = append(all, page...)
		}
		if len(all) != len(m.rows[i]) || !slices.IsSortedFunc(all, func(a, b table.Row) int { return int(a.ID - b.ID) }) {
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
	if m.set.cfg.SkipZero {
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
	case 0:
		m.next(n)
	case 1, 2: // a row of its own
		if n > 0 && !m.whole {
			m.restore(n-1, id, b, values)
		}
	case 3:
		if n > 0 && !m.whole {
			m.end(n - 1)
		}
	case 4, 5, 6: // a delta: the same row may come to each version
		if n == 0 || i == n-1 && !m.whole {
			return
		}
		if err := m.line[i].Assign([]int64{id, id}, append(make([]float32, dim), values...), uint32(b%3), uint64(b%3)); err != nil {
			m.t.Fatal(err)
		}
		m.put(i, table.Row{ID: id, Values: values, UnixSec: uint32(b % 3), Tag: uint64(b % 3)})
	case 7:
		if n == 0 || i == n-1 && !m.whole {
			return
		}
		m.line[i].Remove([]int64{id, id + 1})
		delete(m.rows[i], id)
		delete(m.rows[i], id+1)
	case 8:
		if n > 0 {
			m.drop(i, n)
		}
	}
}

// next begins a successor.
func (m *many) next(n int) {
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
	rows := map[int64]table.Row{}
	if n > 0 {
		maps.Copy(rows, m.rows[n-1])
	}
	m.line, m.rows, m.whole, m.mine = append(m.line, v), append(m.rows, rows), false, map[int64]bool{}
}

func (m *many) restore(i int, id int64, at byte, values []float32) {
	r := table.Row{ID: id, Values: values, UnixSec: uint32(at)}
	if err := m.line[i].Restore([]table.Row{r}); err != nil {
		m.t.Fatal(err)
	}
	if old, ok := m.rows[i][id]; !ok || !slices.Equal(old.Values, values) {
		m.put(i, r)
	}
	m.mine[id] = true
}

// end is that of a version's reading.
func (m *many) end(i int) {
	if err := m.line[i].Whole(); err != nil {
		m.t.Fatal(err)
	}
	maps.DeleteFunc(m.rows[i], func(id int64, _ table.Row) bool { return !m.mine[id] })
	m.whole = true
}

func (m *many) drop(i, n int) {
	one := make([]float32, m.set.Dim())
	if last := m.line[i].Drop(); last != (n == 1) {
		m.t.Fatalf("the last of %d: %v", n, last)
	}
	if _, err := m.line[i].Lookup([]int64{1}, one, nil); !errors.Is(err, ErrDropped) {
		m.t.Fatalf("a version that was dropped answers: %v", err)
	}
	if _, _, err := m.line[i].Rows(table.NoID, 1); !errors.Is(err, ErrDropped) {
		m.t.Fatalf("a version that was dropped has rows: %v", err)
	}
	if err := m.line[i].Assign([]int64{1}, one, 0, 0); !errors.Is(err, ErrDropped) {
		m.t.Fatalf("a version that was dropped is written: %v", err)
	}
	m.whole = m.whole || i == n-1
	m.line, m.rows = slices.Delete(m.line, i, i+1), slices.Delete(m.rows, i, i+1)
	if n == 1 { // nobody begins again in what is left
		m.set = newTable(m.t, m.set.cfg)
	}
}

func (m *many) put(i int, r table.Row) {
	if m.set.cfg.SkipZero && r.Values[0] == 0 {
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
		cfg := table.Config{Name: "v", Dim: 3, Compressor: compress.FP32{}, Serving: true, SkipZero: form&1 != 0}
		if form&2 != 0 {
			cfg.Compressor = compress.FP16{}
		}
		m := &many{t: t, set: newTable(t, cfg), whole: true}
		for ; len(ops) >= 4; ops = ops[4:] {
			m.step(ops[0], ops[1], ops[2], ops[3])
			m.compare()
		}
	})
}

// While a successor is read, written, rolled back, followed and while versions are dropped, each version's
// readers see rows of that version alone. Every row's weights tell the version and all weights are alike.
func TestReadersOfVersions(t *testing.T) {
	w := &watched{T: t, set: newTable(t, table.Config{Name: "v", Dim: watchedDim, Compressor: compress.FP32{}, Serving: true})}
	var line []*Version
	r := rand.New(rand.NewPCG(7, 3))
	for version := 1; version <= 40; version++ {
		v := w.load(version, r)
		if v == nil {
			continue
		}
		line = append(line, v)
		for k := range 2 {
			w.readers.Go(func() { w.read(v, float32(version), uint64(2*version+k)) })
		}
		for _, x := range line[1:] { // a delta that changes nothing of what a version shows but times and tags
			if err := x.Assign([]int64{3, 13, 23}, make([]float32, 3*watchedDim), uint32(version), uint64(version)); err != nil {
				t.Fatal(err)
			}
		}
		for before := w.looked.Load(); w.looked.Load() < before+20 && !t.Failed(); {
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
	w.readers.Wait()
}

const watchedRows, watchedDim = 2000, 8

// watched are versions with readers.
type watched struct {
	*testing.T
	set     *Table
	readers sync.WaitGroup
	looked  atomic.Int64
}

// shows is what a version has for an id: three ids of ten tell it.
func shows(version float32, id int64) float32 {
	if id%10 < 3 {
		return version
	}
	return 0
}

// load reads a version; nil: one that cannot be read to its end.
func (w *watched) load(version int, r *rand.Rand) *Version {
	v, err := w.set.Next()
	if err != nil {
		w.Fatal(err)
	}
	all := make([]table.Row, watchedRows)
	for id := range all {
		all[id] = table.Row{ID: int64(id), Values: slices.Repeat([]float32{shows(float32(version), int64(id))}, watchedDim)}
	}
	cut := watchedRows
	if version%4 == 3 {
		cut = r.IntN(watchedRows)
	}
	for from := 0; from < cut; from += 300 {
		if err := v.Restore(all[from:min(cut, from+300)]); err != nil {
			w.Fatal(err)
		}
	}
	if cut < watchedRows {
		v.Drop()
		return nil
	}
	if err := v.Whole(); err != nil {
		w.Fatal(err)
	}
	return v
}

// read looks at a version until it is dropped.
func (w *watched) read(v *Version, version float32, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 2))
	ids, out := make([]int64, 64), make([]float32, 64*watchedDim)
	for {
		for i := range ids {
			ids[i] = r.Int64N(watchedRows)
		}
		found, err := v.Lookup(ids, out, nil)
		if errors.Is(err, ErrDropped) {
			return
		}
		if err != nil || found != len(ids) {
			w.Errorf("version %v: %d rows of %d, %v", version, found, len(ids), err)
			return
		}
		w.looked.Add(1)
		for i, id := range ids {
			if got := out[i*watchedDim : (i+1)*watchedDim]; got[0] != shows(version, id) || slices.Min(got) != slices.Max(got) {
				w.Errorf("version %v, id %d: %v", version, id, got)
				return
			}
		}
	}
}

// What versions have in common is there once: a successor costs the rows that are other in it, and one
// that follows the same deltas as its predecessor comes to cost nothing.
func TestVersionsShareRows(t *testing.T) {
	const rows, dim = 20_000, 16
	s := newTable(t, table.Config{Name: "v", Dim: dim, Compressor: compress.FP32{}, Serving: true})
	export := func(other int) []table.Row {
		out := make([]table.Row, rows)
		for id := range out {
			out[id] = table.Row{ID: int64(id), Values: make([]float32, dim), UnixSec: 1}
			if id < other {
				out[id].Values[0] = 1
			}
		}
		return out
	}
	load := func(all []table.Row) *Version {
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
	packed := must(table.New(table.Config{Name: "v", Dim: dim, Compressor: compress.FP32{}, Serving: true, Capacity: 500}))
	empty := packed.Bytes()
	if grown := must(table.New(table.Config{Name: "v", Dim: dim, Compressor: compress.FP32{}, Serving: true})); grown.Bytes() >= empty {
		t.Error("room for 500 rows takes none")
	}
	if err := packed.Assign([]int64{1}, make([]float32, dim), 1, 1); err != nil {
		t.Fatal(err)
	}
	if got := first.top.Load().rows.Load().Bytes(); got != packed.Bytes() {
		t.Errorf("a layer of 500 rows takes %d bytes, want %d", got, packed.Bytes())
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
	for name, change := range map[string]func(*table.Config){
		"training": func(c *table.Config) { c.Serving = false }, "limits": func(c *table.Config) { c.MaxRows = 1 }, "bytes": func(c *table.Config) { c.MaxBytes = 1 },
		"lists": func(c *table.Config) { c.Track = true }, "no name": func(c *table.Config) { c.Name = "" },
	} {
		cfg := table.Config{Name: "v", Dim: 2, Compressor: compress.FP32{}, Serving: true}
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	s := newTable(t, table.Config{Name: "v", Dim: 2, Compressor: compress.FP32{}, Serving: true})
	v := must(s.Next())
	if err := errors.Join(v.Restore([]table.Row{{ID: 1, Values: []float32{1, 2}}}), v.Whole()); err != nil {
		t.Fatal(err)
	}
	w := must(s.Next())
	nan := float32(0)
	nan /= nan
	for name, err := range map[string]error{
		"too few numbers":  w.Assign([]int64{1, 2}, []float32{1, 2}, 0, 0),
		"no number":        w.Assign([]int64{1}, []float32{1, nan}, 0, 0),
		"reserved":         w.Assign([]int64{table.NoID}, []float32{1, 2}, 0, 0),
		"a reserved row":   w.Restore([]table.Row{{ID: table.NoID, Values: []float32{1, 2}}}),
		"a row too narrow": w.Restore([]table.Row{{ID: 3, Values: []float32{1}}}),
		"a row of NaN":     w.Restore([]table.Row{{ID: 3, Values: []float32{1, nan}}}),
	} {
		if err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := v.Lookup([]int64{1, 2}, make([]float32, 2), nil); err == nil {
		t.Error("room for fewer rows is taken")
	}
}
