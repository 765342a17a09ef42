package tree

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

// insert puts id under its parent and name. clash says that something of the same hash is
// there already, which may be of the same name.
func (x *index) insert(parent uint32, name string, id uint32) (clash bool) {
	s, h := x.hash(parent, name)
	if 8*(s.n+1) > 7*len(s.slots) {
		s.grow(max(8, 2*len(s.slots)))
	}
	s.n++
	return s.put(slot{h, id})
}

// reserve makes room for n nodes.
func (x *index) reserve(n int) {
	each := n/len(x.segs) + n/(8*len(x.segs)) + 1 // segments are not equally full
	size := 8
	for 7*size < 8*each {
		size *= 2
	}
	for i := range x.segs {
		if s := &x.segs[i]; len(s.slots) < size {
			s.grow(size)
		}
	}
}

func (s *segment) grow(size int) {
	old := s.slots
	s.slots = make([]slot, size)
	for _, o := range old {
		if o.id != 0 {
			s.put(o)
		}
	}
}

func (s *segment) put(v slot) (clash bool) {
	mask := uint32(len(s.slots) - 1)
	i := v.hash & mask
	for s.slots[i].id != 0 {
		clash = clash || s.slots[i].hash == v.hash
		i = (i + 1) & mask
	}
	s.slots[i] = v
	return clash
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
