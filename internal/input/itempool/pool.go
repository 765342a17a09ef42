// Package itempool holds the items of a partition's latest records, from which negatives are drawn.
package itempool

import (
	"math"
	"slices"
	"sync"

	"github.com/monolith-go/monolith/internal/model/samplerule"
	"github.com/monolith-go/monolith/kernels/table"
)

// Pool is the items of a partition from which negatives are drawn, for each rule of the model that makes some. It
// is asked as of an offset: what is drawn for a record follows from those before it, within the rule's reach, whatever
// was read besides. So it is the fold of a window of the log, and whoever reads that window has the same pool. It may
// be used by several decoders at once.
type Pool struct {
	mu    sync.Mutex // guards all below
	seen  int64      // records below this offset are in it
	rules map[int]*pooled
}

// pooled is the items of one rule, in the order of their offsets.
type pooled struct {
	samplerule.Negatives
	items  []Item
	newest map[int64]int // by key: where it is in items, counted from the first item there ever was
	gone   int           // items dropped before the first
}

// Item is one occurrence of an item. It never changes but for next.
type Item struct {
	Key    int64
	IDs    [][]int64   // by feature of the rule
	Floats [][]float32 // by Float of the rule

	offset, next int64 // of its next occurrence
}

// tries bounds how often one negative is drawn before an item is taken that has come again since.
const tries = 1000

// New returns an empty pool.
func New() *Pool { return &Pool{rules: map[int]*pooled{}} }

// Reset forgets everything.
func (p *Pool) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = 0
	clear(p.rules)
}

// Trim forgets what records from offset on cannot draw.
func (p *Pool) Trim(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		n := max(r.from(offset-r.Records), r.from(offset)-r.Items)
		if 2*n < len(r.items) { // so that each item is moved at most once
			continue
		}
		for i := range n {
			if key := r.items[i].Key; r.newest[key] == r.gone+i {
				delete(r.newest, key)
			}
		}
		r.items, r.gone = append([]Item(nil), r.items[n:]...), r.gone+n
	}
}

// Found is an item of a sample, before its record is whole.
type Found struct {
	Rule int // by its place in the spec
	Item
}

// Saw says whether a record is in the pool, or has nothing that could be.
func (p *Pool) Saw(offset int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return offset < p.seen
}

// Put takes a record's items, unless it is in the pool already; of is what their rules declare.
func (p *Pool) Put(offset int64, all []Found, of func(rule int) samplerule.Negatives) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset < p.seen {
		return
	}
	p.seen = offset + 1
	for _, f := range all {
		r := p.rules[f.Rule]
		if r == nil {
			r = &pooled{Negatives: of(f.Rule), newest: map[int64]int{}}
			p.rules[f.Rule] = r
		}
		if at, ok := r.newest[f.Key]; ok {
			r.items[at-r.gone].next = offset
		}
		r.newest[f.Key] = r.gone + len(r.items)
		f.offset, f.next = offset, math.MaxInt64
		r.items = append(r.items, f.Item)
	}
}

// Draw returns the nth other item for a sample whose own has a key; ok is false where there are too few.
func (p *Pool) Draw(rule int, offset, own int64, key uint64) (item Item, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rules[rule]
	if r == nil {
		return item, false
	}
	end := r.from(offset)
	begin := max(r.from(offset-r.Records), end-r.Items)
	if end-begin <= r.Start {
		return item, false
	}
	for try := range tries {
		one := r.items[begin+int(table.Key(key, "", int64(try))%uint64(end-begin))]
		if one.Key == own {
			continue
		}
		item, ok = one, true
		if one.next >= offset { // each item once, however often it came
			return item, true
		}
	}
	return item, ok
}

// from is where items of offset or later begin.
func (r *pooled) from(offset int64) int {
	at, _ := slices.BinarySearchFunc(r.items, offset, func(i Item, offset int64) int {
		if i.offset < offset {
			return -1
		}
		return 1
	})
	return at
}
