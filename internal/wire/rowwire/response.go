package rowwire

import "sync"

var responses = sync.Pool{New: func() any { return new(LookupResponse) }}

// NewLookupResponse returns a response for so many tables in memory that Done gives back
// for the next one. A handler fills it by ValuesOf and SeqsOf; whoever calls the handler
// itself calls Done once it has read the rows, or leaves them to the collector.
func NewLookupResponse(tables int, seqs bool) *LookupResponse {
	r := responses.Get().(*LookupResponse)
	r.Values = reuse(r.Values[:cap(r.Values)], tables)
	r.seqs = reuse(r.seqs[:cap(r.seqs)], tables)
	r.Seqs = nil
	if seqs {
		r.Seqs = r.seqs
	}
	r.Version, r.Step = 0, 0
	r.Done = func() { responses.Put(r) }
	return r
}

// Fill prepares r, of any origin, for the answer to q: a [Filler] calls it before ValuesOf
// and SeqsOf.
func (r *LookupResponse) Fill(q *LookupRequest) {
	r.Values = reuse(r.Values[:cap(r.Values)], len(q.Tables))
	if r.Seqs = r.Seqs[:0]; q.WithSeqs {
		r.Seqs = reuse(r.Seqs[:cap(r.Seqs)], len(q.Tables))
	}
	r.Version, r.Step = 0, 0
}

// Fill prepares r, of any origin, for an answer of n variables: a [DenseFiller] calls it, and writes
// over the values of each in the memory that they have.
func (r *DenseResponse) Fill(n int) {
	r.Tensors, r.Step = reuse(r.Tensors[:cap(r.Tensors)], n), 0
}

// ValuesOf makes room for n numbers of table i.
func (r *LookupResponse) ValuesOf(i, n int) []float32 {
	r.Values[i] = reuse(r.Values[i], n)
	return r.Values[i]
}

// SeqsOf makes room for n sequences of table i, nil if they were not asked for.
func (r *LookupResponse) SeqsOf(i, n int) []uint64 {
	if len(r.Seqs) == 0 {
		return nil
	}
	r.Seqs[i] = reuse(r.Seqs[i], n)
	return r.Seqs[i]
}
