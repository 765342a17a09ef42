package gemm

import "github.com/monolith-go/monolith/kernels/par"

// Workspace multiplies. It owns the memory for packing, which grows to what the largest product
// needs, and lends Pool's threads. One call at a time; workspaces may share a pool. The zero value
// is ready and computes on the caller's goroutine alone.
type Workspace struct {
	// Pool may be changed between calls.
	Pool *par.Pool

	choice  *[2]*backend // fp32 and bf16; nil is the chosen ones
	job     job
	pack    []float32
	workers []worker // by thread

	// The phases as functions, made once.
	packPanel, mulChunk, pack8, mul8 func(worker, i int)

	// Of products in int8.
	choice8 *backend8 // nil is the chosen one
	job8    job8
	bias8   []float32
}

// ready makes room for the pool's threads.
func (s *Workspace) ready() {
	if n := s.Pool.Threads(); len(s.workers) < n {
		s.workers = append(s.workers, make([]worker, n-len(s.workers))...)
	}
	if s.packPanel == nil {
		s.packPanel, s.mulChunk = s.packPhase, s.chunkPhase
		s.pack8, s.mul8 = s.packPhase8, s.mulPhase8
	}
}
