package entrydump

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/kernels/filter"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

var errCrash = errors.New("the machine lost power")

// crashing is a disk that dies at the left-th operation. What was not synced is lost then,
// in part: of a file its end, of a directory its latest changes.
type crashing struct {
	mu      sync.Mutex
	left    int
	dead    bool
	rand    *rand.Rand
	open    []*crashingFile
	changes []func() // undo what was done to directories since the last sync, oldest first
}

type crashingFile struct {
	c            *crashing
	f            *os.File
	size, synced int64
}

// do counts one operation.
func (c *crashing) do(op func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead || c.left == 0 {
		c.dead = true
		return errCrash
	}
	c.left--
	return op()
}

// settle is what a restart finds.
func (c *crashing) settle(t *testing.T) {
	for _, f := range c.open {
		_ = f.f.Close()
		if f.synced < f.size {
			if err := os.Truncate(f.f.Name(), f.synced+c.rand.Int64N(f.size-f.synced+1)); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
	}
	lost := c.rand.IntN(len(c.changes) + 1)
	for _, undo := range slices.Backward(c.changes[len(c.changes)-lost:]) {
		undo()
	}
}

func (c *crashing) MkdirAll(dir string) error {
	return c.do(func() error { return disk{}.MkdirAll(dir) })
}

func (c *crashing) Create(name string) (f file, err error) {
	err = c.do(func() error {
		w, err := disk{}.Create(name)
		if err == nil {
			cf := &crashingFile{c: c, f: w.(*os.File)}
			c.open, f = append(c.open, cf), cf
		}
		return err
	})
	return f, err
}

func (c *crashing) Rename(from, to string) error {
	return c.do(func() error {
		before, err := os.ReadFile(to)
		had := err == nil
		if err := os.Rename(from, to); err != nil {
			return err
		}
		c.changes = append(c.changes, func() {
			_ = os.Rename(to, from)
			if had {
				_ = os.WriteFile(to, before, 0o644)
			}
		})
		return nil
	})
}

func (c *crashing) Remove(name string) error {
	return c.do(func() error {
		before, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		c.changes = append(c.changes, func() { _ = os.WriteFile(name, before, 0o644) })
		return os.Remove(name)
	})
}

func (c *crashing) SyncDir(dir string) error {
	return c.do(func() error { c.changes = nil; return nil })
}

func (f *crashingFile) Write(b []byte) (n int, err error) {
	err = f.c.do(func() error {
		n, err = f.f.Write(b)
		f.size += int64(n)
		return err
	})
	if errors.Is(err, errCrash) { // some of it may have come through
		n, _ = f.f.Write(b[:len(b)/2])
		f.size += int64(n)
	}
	return n, err
}

func (f *crashingFile) Sync() error { return f.c.do(func() error { f.synced = f.size; return nil }) }

func (f *crashingFile) Close() error { return f.f.Close() }

// modelRow is a row as the model knows it.
type modelRow struct {
	values, slots []float32
	unix          uint32
}

// modelTable is a table as a map.
type modelTable struct {
	rows   map[int64]modelRow
	seen   map[int64]uint32 // occurrences of ids without a row
	newest uint32
}

func (m modelTable) clone() modelTable {
	c := modelTable{rows: map[int64]modelRow{}, seen: maps.Clone(m.seen)}
	for id, r := range m.rows {
		c.rows[id] = modelRow{slices.Clone(r.values), slices.Clone(r.slots), r.unix}
		c.newest = max(c.newest, r.unix) // as a restored table knows it
	}
	return c
}

// game is a table of each kind of files, their filter and the model of all.
type game struct {
	t      *testing.T
	rand   *rand.Rand
	dir    string
	step   int
	names  []string
	opts   map[string]optim.Optimizer
	expiry table.Expiry
	tables map[string]*table.Table
	filter *filter.SlidingCounter // of table "single"
	model  map[string]modelTable
	saved  map[int]map[string]modelTable // by step; what a restore of it must give
	sure   int                           // newest step whose save said it was done
}

const gameDim = 3

func (g *game) config(name string) table.Config {
	cfg := config(name, table.Segment{Dim: gameDim, Optimizer: g.opts[name], Initializer: table.Zeros{}})
	if name == "single" {
		cfg.Admitter = g.filter
	}
	return cfg
}

// fresh starts a process without anything.
func (g *game) fresh() {
	var err error
	if g.filter, err = filter.NewSlidingCounter(filter.SlidingConfig{Capacity: 100_000, Splits: 7, Thresholds: filter.Thresholds{Default: 2}}); err != nil {
		g.t.Fatal(err)
	}
	g.tables, g.model = map[string]*table.Table{}, map[string]modelTable{}
	for _, name := range g.names {
		if g.tables[name], err = table.New(g.config(name)); err != nil {
			g.t.Fatal(err)
		}
		g.model[name] = modelTable{rows: map[int64]modelRow{}, seen: map[int64]uint32{}}
	}
}

// learn updates random rows of a table and of its model.
func (g *game) learn() {
	name := g.names[g.rand.IntN(len(g.names))]
	m, now := g.model[name], uint32(1_000_000+g.step*40_000+g.rand.IntN(100_000))
	var ids []int64
	var grads []float32
	sums, counts := map[int64][]float32{}, map[int64]uint32{}
	for range g.rand.IntN(40) {
		id := int64(g.rand.IntN(4))<<48 | int64(g.rand.IntN(60))
		ids = append(ids, id)
		counts[id]++
		if sums[id] == nil {
			sums[id] = make([]float32, gameDim)
		}
		for j := range gameDim {
			x := float32(g.rand.IntN(9) - 4)
			grads = append(grads, x)
			sums[id][j] += x
		}
	}
	if err := g.tables[name].Optimize(ids, grads, now); err != nil {
		g.t.Fatal(err)
	}
	m.newest = max(m.newest, now)
	for id, sum := range sums {
		r, ok := m.rows[id]
		if !ok {
			if name == "single" {
				before := m.seen[id]
				m.seen[id] += counts[id]
				if before < 2 {
					continue
				}
			}
			r.values, r.slots = make([]float32, gameDim), make([]float32, g.opts[name].SlotSize(gameDim))
			g.opts[name].InitSlots(r.slots)
		}
		g.opts[name].Update(r.values, r.slots, sum, optim.Step{})
		r.unix = now
		m.rows[id] = r
	}
	g.model[name] = m
}

func (g *game) expire() {
	name := g.names[g.rand.IntN(len(g.names))]
	for done := false; !done; {
		_, done = g.tables[name].Expire(g.tables[name].Newest(), g.expiry, 64)
	}
	m := g.model[name]
	maps.DeleteFunc(m.rows, func(id int64, r modelRow) bool { return g.expiry.Expired(id, r.unix, m.newest) })
}

func (g *game) path(step int, base string) string {
	return filepath.Join(g.dir, fmt.Sprintf("model.ckpt-%d.assets", step), base)
}

// save writes everything as the next step.
func (g *game) save(f files) error {
	g.step++
	want := map[string]modelTable{}
	var multi []Part
	for _, name := range g.names {
		m := g.model[name].clone()
		maps.DeleteFunc(m.rows, func(id int64, r modelRow) bool { return g.expiry.Expired(id, r.unix, g.model[name].newest) })
		want[name] = m.clone()
		if name != "single" {
			multi = append(multi, Part{g.config(name), g.tables[name], &g.expiry})
		}
	}
	g.saved[g.step] = want
	o := Options{Shards: 1 + g.rand.IntN(3), Workers: 1, files: f}
	if err := SaveFilter(g.path(g.step, FilterName(0)), g.filter, o); err != nil {
		return err
	}
	if err := Save(g.path(g.step, "single"), Part{g.config("single"), g.tables["single"], &g.expiry}, o); err != nil {
		return err
	}
	if err := SaveMulti(g.path(g.step, "multi"), multi, o); err != nil {
		return err
	}
	g.sure = g.step
	return nil
}

// restart loads the newest checkpoint that is whole.
func (g *game) restart() {
	for step := g.step; step > 0; step-- {
		g.fresh()
		err := g.restore(step)
		if err == nil {
			g.model = map[string]modelTable{}
			for name, m := range g.saved[step] {
				g.model[name] = m.clone()
			}
			for later := step + 1; later <= g.step; later++ {
				delete(g.saved, later)
			}
			g.step = step
			g.compare(fmt.Sprintf("after a restart from step %d", step))
			return
		}
		if step <= g.sure {
			g.t.Fatalf("step %d was saved and cannot be restored: %v", step, err)
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrIncomplete) && !errors.Is(err, ErrCorrupt) {
			g.t.Fatalf("half a save is refused as %v", err)
		}
	}
	g.fresh()
	g.step = 0
}

func (g *game) restore(step int) error {
	if err := RestoreFilter(g.path(step, FilterName(0)), g.filter); err != nil {
		return err
	}
	single, err := Restore(g.path(step, "single"), g.config("single"), Reading{})
	if err != nil {
		return err
	}
	var configs []table.Config
	for _, name := range g.names {
		if name != "single" {
			configs = append(configs, g.config(name))
		}
	}
	multi, err := RestoreMulti(g.path(step, "multi"), configs, g.tables, Reading{})
	if err != nil {
		return err
	}
	g.tables = multi.Tables
	g.tables["single"] = single
	return nil
}

func (g *game) compare(when string) {
	g.t.Helper()
	for _, name := range g.names {
		got, want := map[int64]modelRow{}, g.model[name].rows
		for _, r := range g.tables[name].Snapshot() {
			got[r.ID] = modelRow{r.Values, r.Slots, r.UnixSec}
		}
		equal := func(a, b modelRow) bool {
			return slices.Equal(a.values, b.values) && slices.Equal(a.slots, b.slots) && a.unix == b.unix
		}
		if !maps.EqualFunc(got, want, equal) {
			g.t.Fatalf("%s: table %s (-model +table):\n%s", when, name, cmp.Diff(want, got, cmp.AllowUnexported(modelRow{})))
		}
	}
}

// TestModel drives tables, checkpoints, expiry, an admission filter and crashes together,
// against maps: what a save has acknowledged comes back whole, and half a save never.
func TestModel(t *testing.T) {
	all := every()
	crashes, survivors := 0, 0
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := &game{
				t: t, rand: rand.New(rand.NewPCG(seed, 7)), dir: t.TempDir(), names: []string{"single", "ma", "mb"},
				opts:   map[string]optim.Optimizer{"single": all["adagrad"].Optimizer, "ma": all["sgd"].Optimizer, "mb": all["adam"].Optimizer},
				expiry: table.Expiry{Days: map[int]uint32{1: 3, 2: 0}, DefaultDays: 6}, saved: map[int]map[string]modelTable{},
			}
			g.fresh()
			for range 120 {
				switch k := g.rand.IntN(20); {
				case k < 12:
					g.learn()
				case k < 14:
					g.expire()
				case k < 16:
					if err := g.save(nil); err != nil {
						t.Fatal(err)
					}
				case k < 17:
					g.restart()
				default:
					c := &crashing{left: g.rand.IntN(70), rand: g.rand}
					err := g.save(c)
					if err == nil { // it was done before the power went
						survivors++
						continue
					}
					if !errors.Is(err, errCrash) {
						t.Fatal(err)
					}
					crashes++
					c.settle(t)
					g.restart()
				}
				g.compare("in between")
			}
		})
	}
	if crashes < 25 || survivors == 0 {
		t.Errorf("%d crashes and %d saves before one: the test does not test", crashes, survivors)
	}
}

// TestOverwriting crashes at every operation of a save that replaces another: the set is
// the old one, the new one, or refused; and the next save puts it right.
func TestOverwriting(t *testing.T) {
	all := every()
	cfg := config("t", all["adagrad"])
	before, after := taught(t, cfg, 20), taught(t, cfg, 30)
	outcomes := map[string]int{}
	for _, foreign := range []bool{false, true} { // the old set has no sums: the original's
		for left := 0; ; left++ {
			dir := t.TempDir()
			path := filepath.Join(dir, "t")
			if err := Save(path, Part{Config: cfg, Table: before}, Options{Shards: 3}); err != nil {
				t.Fatal(err)
			}
			if foreign {
				if err := os.Remove(path + sumsSuffix); err != nil {
					t.Fatal(err)
				}
			}
			c := &crashing{left: left, rand: rand.New(rand.NewPCG(uint64(left), 1))}
			saved := Save(path, Part{Config: cfg, Table: after}, Options{Shards: 3, Workers: 1, files: c})
			if saved != nil {
				c.settle(t)
			}
			got, err := Restore(path, cfg, Reading{})
			switch {
			case err == nil && got.Hash() == after.Hash():
				outcomes["new"]++
			case saved == nil:
				t.Fatalf("a save that is done restores as %v", err)
			case err == nil && got.Hash() == before.Hash():
				outcomes["old"]++
			case errors.Is(err, ErrCorrupt), errors.Is(err, ErrIncomplete):
				outcomes["refused"]++
			default:
				t.Fatalf("a crash at operation %d leaves %v, %v", left, got, err)
			}
			if err := Save(path, Part{Config: cfg, Table: after}, Options{Shards: 2}); err != nil {
				t.Fatal(err)
			}
			if got, err := Restore(path, cfg, Reading{}); err != nil || got.Hash() != after.Hash() {
				t.Fatalf("the save after the crash at operation %d: %v", left, err)
			}
			if entries := must(os.ReadDir(dir)); len(entries) != 3 {
				t.Fatalf("rubbish is left: %v", entries)
			}
			if saved == nil {
				break
			}
		}
	}
	for _, o := range []string{"old", "new", "refused"} {
		if outcomes[o] == 0 {
			t.Errorf("no crash led to %s: %v", o, outcomes)
		}
	}
}
