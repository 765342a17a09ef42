package serving

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"

	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/peers"
)

// tritonSwapped is Triton with a file of as many bytes, of which each version is the whole.
type tritonSwapped struct {
	SwapCase
	server *peers.Triton
	answer atomic.Int64 // the version that answered last
}

// tritonSwap measures Triton while it reloads a model of the same bytes, against the same at rest.
func tritonSwap(ctx context.Context, r *bench.Runner, sc SwapCase) (err error) {
	s := &tritonSwapped{SwapCase: sc}
	if s.server, err = peers.StartTriton(ctx, sc.Dim, sc.write); err != nil {
		return r.Missing(err)
	}
	defer func() { err = errors.Join(err, s.server.Close()) }()
	return r.Compare(ctx, sc.comparison("Triton reloading", 0, s.swap, s.rest))
}

// write writes the rows of a case one after the other.
func (sc SwapCase) write(to io.Writer) error {
	const some = 1024
	rng := rand.New(rand.NewPCG(3, 4))
	vectors := make([]float32, some*sc.Dim)
	for i := range vectors {
		vectors[i] = rng.Float32()
	}
	for left := sc.Rows; left > 0; left -= some {
		if err := binary.Write(to, binary.LittleEndian, vectors[:min(left, some)*sc.Dim]); err != nil {
			return err
		}
	}
	return nil
}

// ask looks as many rows up as the entry does, by their numbers.
func (s *tritonSwapped) ask(ctx context.Context, n int) error {
	rng := rand.New(rand.NewPCG(9, uint64(n)))
	ids := make([]int64, askIDs)
	for i := range ids {
		ids[i] = rng.Int64N(int64(s.Rows))
	}
	version, err := s.server.Lookup(ctx, ids)
	if err == nil {
		s.answer.Store(version)
	}
	return err
}

// memory is that of all its processes.
func (s *tritonSwapped) memory() (all int64, err error) {
	pids, err := s.server.Processes()
	if err != nil {
		return 0, err
	}
	for i, pid := range pids {
		one, err := resident(pid)
		if err != nil && i > 0 {
			continue // a process of the backend that has ended since
		}
		if err != nil {
			return 0, err
		}
		all += one
	}
	return all, nil
}

func (s *tritonSwapped) rest(ctx context.Context) ([]float64, error) {
	within, cancel := context.WithTimeout(ctx, s.Quiet)
	defer cancel()
	return measure(within, s.Rate, s.memory, s.ask)
}

// swap asks from when the next version is published until a little after it has answered.
func (s *tritonSwapped) swap(ctx context.Context) ([]float64, error) {
	reloaded := make(chan error, 1)
	number := s.server.Version() + 1
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		err := s.server.Reload(ctx)
		if err != nil {
			cancel()
		}
		reloaded <- err
	}()
	got, err := swapTo(ctx, number, &s.answer, s.Rate, s.memory, s.ask)
	if err != nil {
		cancel()
	}
	return got, errors.Join(err, <-reloaded)
}
