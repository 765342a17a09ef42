package rowwire

// Into prepares r for LookupInto: the rows of each table asked for are decoded into values
// and, unless seqs is empty, their sequences into seqs. Both have for each table just the
// memory that its answer takes. It is to be called before each attempt.
func (r *LookupResponse) Into(values [][]float32, seqs [][]uint64) {
	r.Values, r.Seqs = into(r.Values, values), into(r.Seqs, seqs)
}

// Into prepares r for DenseInto: the numbers of each variable asked for are decoded into values,
// which has for each just the memory that its answer takes. It is to be called before each attempt.
func (r *DenseResponse) Into(values [][]float32) {
	clear(r.Tensors[:cap(r.Tensors)])
	r.Tensors = r.Tensors[:0]
	for _, v := range values {
		r.Tensors = append(r.Tensors, NamedTensor{Values: v[:len(v):len(v)]})
	}
}

// Land copies tensor i of r to values, which Into was given, unless it lies there. They are equally long.
func (r *DenseResponse) Land(i int, values []float32) { land(values, r.Tensors[i].Values) }

// into forgets what dst held before: an answer of more tables than were asked for must not
// be decoded into memory that belongs to somebody else by now.
func into[T any](dst, src [][]T) [][]T {
	clear(dst[:cap(dst)])
	dst = dst[:0]
	for _, v := range src {
		dst = append(dst, v[:len(v):len(v)])
	}
	return dst
}

// Landed is Invalid unless r has just as much for each table as the memory that Into was
// given; then it lies there. An answer that lies elsewhere is copied.
func (r *LookupResponse) Landed(values [][]float32, seqs [][]uint64) error {
	if len(r.Values) != len(values) || len(seqs) > 0 && len(r.Seqs) != len(seqs) {
		return Errorf(Invalid, "an answer of %d tables, %d with sequences, to a question of %d and %d", len(r.Values), len(r.Seqs), len(values), len(seqs))
	}
	for i, v := range values {
		if len(r.Values[i]) != len(v) {
			return Errorf(Invalid, "table %d of the answer has %d floats, asked for were %d", i, len(r.Values[i]), len(v))
		}
		land(v, r.Values[i])
	}
	for i, v := range seqs {
		if len(r.Seqs[i]) != len(v) {
			return Errorf(Invalid, "table %d of the answer has %d sequences, asked for were %d", i, len(r.Seqs[i]), len(v))
		}
		land(v, r.Seqs[i])
	}
	return nil
}

func land[T any](dst, src []T) {
	if len(dst) > 0 && &dst[0] != &src[0] {
		copy(dst, src)
	}
}
