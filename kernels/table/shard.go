package table

import "sync"

const (
	shardBits  = 6
	shardCount = 1 << shardBits
	slabBits   = 7
	slabRows   = 1 << slabBits // per allocation
)

// shard owns the rows of the ids that hash to it. Slabs are never moved or returned, so
// growing copies nothing; places of removed rows are used again, last removed first.
type shard struct {
	mu     sync.RWMutex
	index  map[int64]uint32 // id -> place
	slabs  [][]float32      // place p: slabs[p>>slabBits][(p%slabRows)*stride:][:stride]
	metas  []*[slabRows]meta
	free   []uint32
	used   uint32 // places handed out so far, free ones included
	stride int    // dim + slots
}

type meta struct {
	tag     uint64
	unixSec uint32
}

func (t *Table) shardOf(id int64) *shard {
	return &t.shards[mix(uint64(id)+golden)>>(64-shardBits)]
}

// insert finds a place for a new id. Its floats are not set yet, its meta is zero.
func (s *shard) insert(id int64) uint32 {
	var at uint32
	if n := len(s.free); n > 0 {
		at, s.free = s.free[n-1], s.free[:n-1]
		*s.meta(at) = meta{}
	} else {
		at = s.used
		s.used++
		if int(at>>slabBits) == len(s.slabs) {
			s.slabs = append(s.slabs, make([]float32, slabRows*s.stride))
			s.metas = append(s.metas, new([slabRows]meta))
		}
	}
	s.index[id] = at
	return at
}

func (s *shard) remove(id int64) bool {
	at, ok := s.index[id]
	if ok {
		delete(s.index, id)
		s.free = append(s.free, at)
	}
	return ok
}

func (s *shard) floats(at uint32) []float32 {
	lo := int(at%slabRows) * s.stride
	return s.slabs[at>>slabBits][lo : lo+s.stride : lo+s.stride]
}

func (s *shard) meta(at uint32) *meta { return &s.metas[at>>slabBits][at%slabRows] }

// summer adds up the gradients of equal ids, in first-seen order.
type summer struct {
	at    map[int64]int
	ids   []int64
	grads []float32
}

func newSummer() *summer { return &summer{at: map[int64]int{}} }

func (s *summer) add(ids []int64, grads []float32, dim int) {
	clear(s.at)
	s.ids, s.grads = s.ids[:0], s.grads[:0]
	for i, id := range ids {
		g := grads[i*dim : (i+1)*dim]
		at, seen := s.at[id]
		if !seen {
			s.at[id] = len(s.ids)
			s.ids = append(s.ids, id)
			s.grads = append(s.grads, g...)
			continue
		}
		for j, v := range g {
			s.grads[at*dim+j] += v
		}
	}
}
