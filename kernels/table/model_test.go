package table

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/kernels/internal/cpu"
	"github.com/monolith-go/monolith/kernels/optim"
)

// A machine that quietly looks rows up the slow way is a fault of the build.
func TestTheFastestIsChosen(t *testing.T) {
	want := runnable()[len(runnable())-1]
	if os.Getenv(cpu.NoAVX2) == "" && os.Getenv(cpu.Kernels) == "" && chosen != want {
		t.Errorf("%s is in use, %d could be", Backend(), want)
	}
	tab := must(New(Config{Name: "t", Dim: 1, Optimizer: optim.SGD{}, Initializer: Zeros{}}))
	if tab.backend != chosen {
		t.Error("a new table has another backend")
	}
	if chosen == plain {
		t.Log("assembly does not run here: it is missing, excluded from the build, or switched off")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// model is a table as one would write it first.
type model struct {
	cfg  Config
	rows map[int64]Row
}

func (m *model) row(id int64) Row {
	if r, ok := m.rows[id]; ok {
		return Row{id, slices.Clone(r.Values), slices.Clone(r.Slots), r.UnixSec, r.Tag}
	}
	return m.fresh(id)
}

func (m *model) fresh(id int64) Row {
	r := Row{ID: id, Values: make([]float32, m.cfg.Dim), Slots: make([]float32, m.cfg.Optimizer.SlotSize(m.cfg.Dim))}
	m.cfg.Initializer.Init(r.Values, Key(m.cfg.Seed, m.cfg.Name, id))
	m.cfg.Optimizer.InitSlots(r.Slots)
	return r
}

// missing counts the distinct ids that have no row.
func (m *model) missing(ids []int64) int {
	seen := map[int64]bool{}
	for _, id := range ids {
		if _, ok := m.rows[id]; !ok {
			seen[id] = true
		}
	}
	return len(seen)
}

// sums adds up the blocks of equal ids in order.
func sums(ids []int64, block []float32, dim int) (order []int64, sum map[int64][]float32) {
	sum = map[int64][]float32{}
	for i, id := range ids {
		b := block[i*dim : (i+1)*dim]
		if s, ok := sum[id]; ok {
			for j, x := range b {
				s[j] += x
			}
			continue
		}
		order, sum[id] = append(order, id), slices.Clone(b)
	}
	return order, sum
}

// drive does steps random calls on a table and on the model, comparing as it goes.
func drive(t *testing.T, b backend, seed uint64, dim, steps int, o optim.Optimizer, limit int) {
	r := rand.New(rand.NewPCG(seed, uint64(dim)))
	cfg := Config{Name: "m", Dim: dim, Optimizer: o, Initializer: RandomUniform{-1, 1}, Seed: seed, MaxRows: limit}
	tab := must(New(cfg))
	tab.backend = b
	d := &driver{model: &model{cfg, map[int64]Row{}}, t: t, tab: tab, r: r, seed: seed, span: int64(1) << r.IntN(14)}
	for step := range steps {
		ids, now := d.draw(), r.Uint32N(1<<20)
		switch op := r.IntN(16); {
		case op < 5:
			d.optimize(ids, now)
		case op < 8:
			d.assign(ids, now, uint64(step))
		case op < 9:
			d.assignAdd(ids, now)
		case op < 11:
			d.remove(ids[:min(len(ids), 20)])
		case op < 12:
			d.reinitialize(ids[:min(len(ids), 9)], now)
		case op < 13:
			d.restore(ids, now)
		case op < 14:
			d.expire()
		case op == 15 && r.IntN(20) == 0:
			tab.Clear()
			clear(d.rows)
		}
		d.compare(t, tab, d.draw(), seed)
	}
	all := slices.Sorted(maps.Keys(d.rows))
	if got := tab.ids(); !slices.Equal(got, all) {
		t.Fatalf("seed %d: %d ids, want %d", seed, len(got), len(all))
	}
	d.compare(t, tab, all, seed)
}

// driver does the same to a table and to its model.
type driver struct {
	*model
	t    *testing.T
	tab  *Table
	r    *rand.Rand
	seed uint64
	span int64 // of ids
}

func (d *driver) draw() []int64 {
	ids := make([]int64, d.r.IntN(3)*d.r.IntN(200)+d.r.IntN(5))
	for i := range ids {
		ids[i] = (d.r.Int64N(d.span) - d.span/2) * (1 << 48) / 16
	}
	return ids
}

func (d *driver) block(n int) []float32 {
	v := make([]float32, n*d.cfg.Dim)
	for i := range v {
		v[i] = d.r.Float32() - .5
	}
	return v
}

// fits says whether ids have room in the table, which must have said the same.
func (d *driver) fits(ids []int64, err error) bool {
	missing, limit := d.missing(ids), d.cfg.MaxRows
	full := limit > 0 && len(d.rows)+missing > limit && missing > 0
	if errors.Is(err, ErrFull) != full || err != nil && !full {
		d.t.Fatalf("seed %d: %d rows, %d new, limit %d: %v", d.seed, len(d.rows), missing, limit, err)
	}
	return !full
}

func (d *driver) optimize(ids []int64, now uint32) {
	g := d.block(len(ids))
	if !d.fits(ids, d.tab.Optimize(ids, g, now)) {
		return
	}
	order, sum := sums(ids, g, d.cfg.Dim)
	for _, id := range order {
		row := d.row(id)
		d.cfg.Optimizer.Update(row.Values, row.Slots, sum[id], optim.Step{})
		row.UnixSec = now
		d.rows[id] = row
	}
}

func (d *driver) assign(ids []int64, now uint32, tag uint64) {
	v, dim := d.block(len(ids)), d.cfg.Dim
	if !d.fits(ids, d.tab.Assign(ids, v, now, tag)) {
		return
	}
	for i, id := range ids {
		row := d.row(id)
		row.Values, row.UnixSec, row.Tag = slices.Clone(v[i*dim:(i+1)*dim]), now, tag
		d.rows[id] = row
	}
}

func (d *driver) assignAdd(ids []int64, now uint32) {
	v := d.block(len(ids))
	if !d.fits(ids, d.tab.AssignAdd(ids, v, now, 7)) {
		return
	}
	order, sum := sums(ids, v, d.cfg.Dim)
	for _, id := range order {
		row := d.row(id)
		for j, x := range sum[id] {
			row.Values[j] += x
		}
		row.UnixSec, row.Tag = now, 7
		d.rows[id] = row
	}
}

func (d *driver) remove(ids []int64) {
	want := 0
	for _, id := range ids {
		if _, ok := d.rows[id]; ok {
			want++
			delete(d.rows, id)
		}
	}
	if got := d.tab.Remove(ids); got != want {
		d.t.Fatalf("seed %d: removed %d, want %d", d.seed, got, want)
	}
}

func (d *driver) reinitialize(ids []int64, now uint32) {
	had, err := d.tab.Reinitialize(ids, now)
	if !d.fits(ids, err) {
		return
	}
	for i, id := range ids {
		if _, ok := d.rows[id]; ok != had[i] {
			d.t.Fatalf("seed %d: reinitialize says %v of %d", d.seed, had[i], id)
		}
		row := d.fresh(id)
		row.UnixSec = now
		d.rows[id] = row
	}
}

func (d *driver) restore(ids []int64, now uint32) {
	var rows []Row
	for _, id := range ids {
		row := Row{ID: id, Values: d.block(1), UnixSec: now, Tag: 3}
		if d.r.IntN(2) == 0 {
			row.Slots = make([]float32, len(d.fresh(id).Slots))
		}
		rows = append(rows, row)
	}
	if !d.fits(ids, d.tab.Restore(rows)) {
		return
	}
	for _, row := range rows {
		if len(row.Slots) == 0 {
			row.Slots = d.fresh(row.ID).Slots
		}
		d.rows[row.ID] = row
	}
}

func (d *driver) expire() {
	policy := Expiry{Days: map[int]uint32{0: 2, 3: 0, SlotOf(-1 << 48): 1}, DefaultDays: 3}
	want, got := len(d.rows), 0
	maps.DeleteFunc(d.rows, func(id int64, row Row) bool {
		days, ok := policy.Days[SlotOf(id)]
		if !ok {
			days = 3
		}
		return days > 0 && int64(d.tab.Newest())-int64(row.UnixSec) >= int64(days)*86400
	})
	for done := false; !done; {
		var n int
		n, done = d.tab.Expire(d.tab.Newest(), policy, 1+d.r.IntN(500))
		got += n
	}
	if got != want-len(d.rows) {
		d.t.Fatalf("seed %d: %d rows expired, want %d", d.seed, got, want-len(d.rows))
	}
}

func (m *model) compare(t *testing.T, tab *Table, ids []int64, seed uint64) {
	dim := m.cfg.Dim
	if tab.Len() != len(m.rows) {
		t.Fatalf("seed %d: %d rows, want %d", seed, tab.Len(), len(m.rows))
	}
	out, tags := make([]float32, len(ids)*dim), make([]uint64, len(ids))
	for i := range out {
		out[i] = 99
	}
	found, err := tab.Lookup(ids, out, tags)
	if err != nil {
		t.Fatal(err)
	}
	rows, ok := tab.LookupEntries(ids)
	for i, id := range ids {
		want, there := m.rows[id]
		if !there {
			want = Row{ID: id, Values: make([]float32, dim)}
		} else {
			found--
		}
		if !slices.Equal(out[i*dim:(i+1)*dim], want.Values) || tags[i] != want.Tag {
			t.Fatalf("seed %d: id %d: %v tagged %d, want %v", seed, id, out[i*dim:(i+1)*dim], tags[i], want)
		}
		if ok[i] != there || there && (!slices.Equal(rows[i].Values, want.Values) || !slices.Equal(rows[i].Slots, want.Slots) || rows[i].UnixSec != want.UnixSec || rows[i].Tag != want.Tag) {
			t.Fatalf("seed %d: id %d: %+v, want %+v", seed, id, rows[i], want)
		}
	}
	if found != 0 {
		t.Fatalf("seed %d: found is wrong by %d", seed, found)
	}
}

var (
	testAdagrad = optim.Adagrad{LearningRate: 0.05, InitialAccumulator: 0.1, WeightDecay: 0.01}
	testSGD     = optim.SGD{LearningRate: 0.5}
)

func TestAgainstTheModel(t *testing.T) {
	for _, b := range runnable() {
		for i, dim := range []int{1, 3, 4, 15, 16, 17, 33, 64, 100} {
			o := optim.Optimizer(testAdagrad)
			if i%2 == 0 {
				o = testSGD
			}
			for seed := range uint64(3) {
				limit := 0
				if seed == 2 {
					limit = 150
				}
				drive(t, b, seed, dim, 40, o, limit)
			}
		}
	}
}

func FuzzTable(f *testing.F) {
	for i := range uint64(8) {
		f.Add(i, uint8(7*i+1), uint8(i*3), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, dim, limit uint8, adagrad bool) {
		o := optim.Optimizer(testSGD)
		if adagrad {
			o = testAdagrad
		}
		for _, b := range runnable() {
			drive(t, b, seed, int(dim)%130+1, 20, o, 8*int(limit))
		}
	})
}

// crafted is the id of a hash that begins with shard and high, of bits bits.
func crafted(shard int, high uint64, bits int, low uint64) int64 {
	return idOf(uint64(shard)<<58 | (high<<(58-bits)|low&(1<<(58-bits)-1))&(1<<58-1))
}

// The longest pause is bounded by counting what an insertion moves.
func TestGrowthIsInSmallSteps(t *testing.T) {
	tab := must(New(Config{Name: "t", Dim: 1, Optimizer: optim.SGD{}, Initializer: Zeros{}}))
	s := &tab.shards[5]
	r := rand.New(rand.NewPCG(1, 1))
	grew := 0
	var ids []int64
	for range 60_000 {
		id := crafted(5, 0, 0, r.Uint64())
		moved, n := s.moved, s.head.n
		if err := tab.Assign([]int64{id}, []float32{float32(id % 1000)}, 1, 0); err != nil {
			t.Fatal(err)
		}
		if did := s.moved - moved; did > migrateStep {
			t.Fatalf("one insertion moved %d buckets", did)
		}
		if s.head.n != n {
			grew++
		}
		ids = append(ids, id)
	}
	if grew < 15 {
		t.Errorf("the shard grew %d times only", grew)
	}
	out := make([]float32, len(ids))
	if found, err := tab.Lookup(ids, out, nil); err != nil || found != len(ids) {
		t.Fatal(found, err)
	}
	for i, id := range ids {
		if out[i] != float32(id%1000) {
			t.Fatalf("id %d has another's row", id)
		}
	}
}

func TestIndexBytesPerKey(t *testing.T) {
	tab := must(New(Config{Name: "t", Dim: 1, Optimizer: optim.SGD{}, Initializer: Zeros{}, Capacity: 1 << 20}))
	r := rand.New(rand.NewPCG(1, 1))
	n := tab.shards[0].head.n
	full := int(n) * perBucket * 9 / 10
	ids, zeros := make([]int64, full), make([]float32, full)
	for shard := range shardCount {
		for i := range ids {
			ids[i] = crafted(shard, 0, 0, r.Uint64())
		}
		if err := tab.Assign(ids, zeros, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	if tab.shards[0].head.n != n || tab.shards[0].head.next != nil {
		t.Fatal("the table has grown before its load was 0.9")
	}
	if per := float64(tab.index()) / float64(tab.Len()); per > 12 {
		t.Errorf("%.2f bytes per key at a load of 0.9, want 12 at most", per)
	} else {
		t.Logf("%.2f bytes of index per key", per)
	}
	near, total := 0, 0
	for i := range tab.shards {
		h := tab.shards[i].head
		for b := range h.n + tail(h.n) {
			e := bucketAt(h.cur, b)
			for p := range perBucket {
				if e.state>>p&1 != 0 {
					total++
					if e.word[p]&maxDistance == 0 {
						near++
					}
				}
			}
		}
	}
	if float64(near) < .65*float64(total) {
		t.Errorf("%d of %d entries lie in their home bucket", near, total)
	} else {
		t.Logf("%.1f %% of the entries lie in their home bucket", 100*float64(near)/float64(total))
	}
}

// Ids chosen to share a bucket find room by a rebuild; where nothing helps, an error
// says so and everything else is as it should be.
func TestChosenIDs(t *testing.T) {
	for _, b := range runnable() {
		tab := must(New(Config{Name: "t", Dim: 1, Optimizer: testSGD, Initializer: Zeros{}}))
		tab.backend = b
		var ids []int64
		for i := range uint64(400) {
			ids = append(ids, crafted(3, 5, 3, i<<46)) // an eighth of the shard's range
		}
		v := make([]float32, len(ids))
		for i := range v {
			v[i] = float32(i)
		}
		if err := tab.Assign(ids, v, 1, 0); err != nil {
			t.Fatal(err)
		}
		out := make([]float32, len(ids))
		if found, err := tab.Lookup(ids, out, nil); found != len(ids) || err != nil || !slices.Equal(out, v) {
			t.Fatal(found, err)
		}
		var same []int64
		for i := range uint64(400) {
			same = append(same, crafted(9, 5, 32, i))
		}
		if err := tab.Assign(same, v, 1, 0); err == nil {
			t.Error("400 ids with one home were placed")
		}
		n := 0
		for _, id := range same {
			if r, ok := tab.row(id); ok {
				n++
				if r.Values[0] != float32(slices.Index(same, id)) {
					t.Fatal("a chosen id has another's row")
				}
			}
		}
		if n < 100 || tab.Len() != len(ids)+n {
			t.Errorf("%d of the chosen ids have rows, the table says %d in all", n, tab.Len())
		}
	}
}
