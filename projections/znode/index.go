package znode

import "hash/maphash"

// index finds a node by its parent and its name. It is cut into segments that grow one
// by one, so that no event pays for copying all of it. Linear probing; what is deleted
// leaves no trace.
type index struct {
	seed maphash.Seed
	segs [256]segment
}

type segment struct {
	slots []slot // a power of two
	n     int
}

type slot struct{ hash, id uint32 } // id 0: empty

// hash picks the segment and the place in it. It is another one in every process, so
// nobody can choose names that collide; nothing that leaves the tree depends on it.
func (x *index) hash(parent uint32, name string) (*segment, uint32) {
	h := maphash.String(x.seed, name) ^ uint64(parent)*0x9e3779b97f4a7c15
	h *= 0xff51afd7ed558ccd
	h ^= h >> 32
	return &x.segs[h>>24&0xff], uint32(h) ^ uint32(h>>40)
}

func (x *index) find(parent uint32, name string, is func(id uint32) bool) uint32 {
	s, h := x.hash(parent, name)
	if len(s.slots) == 0 {
		return 0
	}
	mask := uint32(len(s.slots) - 1)
	for i := h & mask; s.slots[i].id != 0; i = (i + 1) & mask {
		if s.slots[i].hash == h && is(s.slots[i].id) {
			return s.slots[i].id
		}
	}
	return 0
}

func (x *index) insert(parent uint32, name string, id uint32) {
	s, h := x.hash(parent, name)
	if 8*(s.n+1) > 7*len(s.slots) {
		old := s.slots
		s.slots = make([]slot, max(8, 2*len(old)))
		for _, o := range old {
			if o.id != 0 {
				s.put(o)
			}
		}
	}
	s.put(slot{h, id})
	s.n++
}

func (s *segment) put(v slot) {
	mask := uint32(len(s.slots) - 1)
	i := v.hash & mask
	for s.slots[i].id != 0 {
		i = (i + 1) & mask
	}
	s.slots[i] = v
}

func (x *index) remove(parent uint32, name string, id uint32) {
	s, h := x.hash(parent, name)
	mask := uint32(len(s.slots) - 1)
	i := h & mask
	for s.slots[i].id != id {
		i = (i + 1) & mask
	}
	// Whatever stands behind the gap and would not be found across it moves into it.
	for j := (i + 1) & mask; s.slots[j].id != 0; j = (j + 1) & mask {
		if home := s.slots[j].hash & mask; (j-home)&mask >= (j-i)&mask {
			s.slots[i] = s.slots[j]
			i = j
		}
	}
	s.slots[i] = slot{}
	s.n--
}
