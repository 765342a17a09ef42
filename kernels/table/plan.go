package table

import (
	"sync"
	"unsafe"

	"github.com/monolith-go/monolith/kernels/vec"
)

// plan is the distinct ids of a call, those of one shard side by side, so that a lock is
// taken once for many of them. Which of equal ids counts, or that they are summed, is
// the caller's affair: it goes through the rest of the plan.
type plan struct {
	hash  []uint64 // distinct, by shard, in first-seen order within one
	from  []int32  // where in the call's block the id's row is; of equal ids the last
	sum   []int32  // or, unless negative, where in sums
	skip  []bool   // not admitted; empty where all are
	sums  []float32
	twins []twin // occurrences of an id but its first, in order

	raw   []uint64 // hashes of all ids, in order
	table []uint32 // open addressing: 1 + place of the first of equal hashes in raw
	none  []int32  // nothing but -1
	own   []int32  // sum, if there are twins
	place []int32  // in hash, of each id but twins, if there are any
	count []uint32 // like hash, if there are twins
	most  uint32   // how often any id occurs

	touch  bool  // the rows are to be listed as written
	pipe   *pipe // of the write under way
	staged bool  // what write calls is a stage of it, see pipe.runStages
}

type twin struct{ first, at int32 }

var plans = sync.Pool{New: func() any { return new(plan) }}

// reserved is what no plan holds.
var reserved = hashOf(NoID)

func (p *plan) id(i int) int64 { return idOf(p.hash[i]) }

// occurrences is how often the i-th id was given.
func (p *plan) occurrences(i int) uint32 {
	if len(p.twins) == 0 {
		return 1
	}
	return p.count[i]
}

// build fills p. With a block of dim floats per id, it adds up those of equal ids, in
// the order given. It fails where NoID is among them.
func (p *plan) build(b backend, ids []int64, block []float32, dim int) bool {
	p.raw = fit(p.raw, len(ids))
	hashAll(b, p.raw, ids)
	size := 16
	for size < 3*len(ids) {
		size *= 2
	}
	p.table = fit(p.table, size)
	clear(p.table)
	p.twins, p.sums, p.skip, p.most, p.staged = p.twins[:0], p.sums[:0], p.skip[:0], 1, false
	var starts [shardCount]int32
	seen, table, mask := uint64(0), p.table, uint64(size-1)
	for i, hash := range p.raw {
		if hash == reserved {
			return false
		}
		at := hash & mask
		if table[at] != 0 {
			for table[at] != 0 && p.raw[table[at]-1] != hash {
				at = (at + 1) & mask
			}
			if n := table[at]; n != 0 {
				p.twins = append(p.twins, twin{int32(n - 1), int32(i)})
				continue
			}
		}
		table[at] = uint32(i) + 1
		starts[hash>>(64-shardBits)]++
		seen++
	}
	n := int(seen)
	p.hash, p.from = fit(p.hash, n+burst), fit(p.from, n)
	clear(p.hash[n:]) // see pipe.runStages
	p.hash = p.hash[:n]
	for len(p.none) < n {
		p.none = append(p.none, -1)
	}
	p.sum = p.none[:n]
	if n == 0 {
		return true
	}
	// The shards take turns in coming first, or calls at the same time would meet at one
	// lock after the other. The call's ids decide, so that equal calls do the same.
	first, at := p.raw[0]>>(64-shardBits), int32(0)
	for i := range uint64(shardCount) {
		c := &starts[(first+i)%shardCount]
		*c, at = at, at+*c
	}
	if len(p.twins) > 0 {
		p.spread(block, dim, n, &starts)
		return true
	}
	to, from := p.hash, p.from
	for i, hash := range p.raw {
		at := starts[hash>>(64-shardBits)]
		starts[hash>>(64-shardBits)] = at + 1
		to[at], from[at] = hash, int32(i)
	}
	return true
}

// spread is the end of build where ids occur more than once.
func (p *plan) spread(block []float32, dim, n int, starts *[shardCount]int32) {
	p.place, p.count, p.own = fit(p.place, len(p.raw)), fit(p.count, n), fit(p.own, n)
	next := int32(0)
	for t := range len(p.twins) + 1 {
		end := int32(len(p.raw))
		if t < len(p.twins) {
			end = p.twins[t].at
		}
		for i := next; i < end; i++ {
			hash := p.raw[i]
			at := starts[hash>>(64-shardBits)]
			starts[hash>>(64-shardBits)] = at + 1
			p.hash[at], p.from[at], p.place[i] = hash, i, at
		}
		next = end + 1
	}
	for i := range p.count {
		p.count[i] = 1
	}
	copy(p.own, p.sum)
	p.sum = p.own
	for _, w := range p.twins {
		at := p.place[w.first]
		p.from[at] = w.at
		p.count[at]++
		p.most = max(p.most, p.count[at])
		if block == nil {
			continue
		}
		if p.sum[at] < 0 {
			p.sum[at] = int32(len(p.sums) / dim)
			p.sums = append(p.sums, block[int(w.first)*dim:int(w.first+1)*dim]...)
		}
		vec.Add(block[int(w.at)*dim:][:dim], p.sums[int(p.sum[at])*dim:])
	}
}

// row is what the plan made of block for its i-th id.
func (p *plan) row(block []float32, dim, i int) []float32 {
	if n := int(p.sum[i]); n >= 0 {
		return p.sums[n*dim : (n+1)*dim]
	}
	n := int(p.from[i])
	return block[n*dim : (n+1)*dim]
}

// hashAll sets hashes to those of ids.
func hashAll(b backend, hashes []uint64, ids []int64) {
	if b == avx512 && len(ids) > 0 {
		hashAVX512(&ids[0], len(ids), &hashes[0])
		return
	}
	for i, id := range ids {
		hashes[i] = hashOf(id)
	}
}

// signed is the same words under another type.
func signed(hashes []uint64) []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(hashes))), len(hashes))
}

func fit[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}
