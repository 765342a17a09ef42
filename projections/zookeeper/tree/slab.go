package tree

const (
	slabBits = 10
	slabSize = 1 << slabBits
)

// slab holds values of one type by small numbers from 1, in pieces that never move and
// that the collector does not scan when T holds no pointer. A frozen copy shares the
// pieces; whoever writes to a shared piece copies it first.
type slab[T any] struct {
	pieces []*[slabSize]T
	own    []bool // parallel to pieces: nobody else reads it
	free   []uint32
	next   uint32 // number never given out, 0: none was
}

// at is the value to be read.
func (s *slab[T]) at(id uint32) *T { return &s.pieces[id>>slabBits][id&(slabSize-1)] }

// mut is the value to be written.
func (s *slab[T]) mut(id uint32) *T {
	p := id >> slabBits
	if !s.own[p] {
		c := *s.pieces[p]
		s.pieces[p], s.own[p] = &c, true
	}
	return &s.pieces[p][id&(slabSize-1)]
}

// alloc gives out a zero value.
func (s *slab[T]) alloc() uint32 {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		return id
	}
	s.next = max(s.next, 1)
	id := s.next
	s.next++
	if int(id>>slabBits) == len(s.pieces) {
		s.pieces, s.own = append(s.pieces, new([slabSize]T)), append(s.own, true)
	}
	return id
}

func (s *slab[T]) release(id uint32) {
	var zero T
	*s.mut(id) = zero
	s.free = append(s.free, id)
}

// freeze is a copy for reading, which later writes leave alone until thaw.
func (s *slab[T]) freeze() slab[T] {
	clear(s.own)
	return slab[T]{pieces: append([]*[slabSize]T(nil), s.pieces...), next: s.next}
}

// thaw says that no frozen copy is read any more.
func (s *slab[T]) thaw() {
	for i := range s.own {
		s.own[i] = true
	}
}
