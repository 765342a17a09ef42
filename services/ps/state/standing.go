package state

import (
	"context"
	"time"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
)

// Now is where the shard stands, or why it does not answer.
func (s *Shard) Now() (shardcmd.State, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.refuse != nil {
		return shardcmd.State{}, s.refuse
	}
	return s.standing(), nil
}

// Beyond waits until the shard answers in a later generation.
func (s *Shard) Beyond(ctx context.Context, generation uint64) (shardcmd.State, error) {
	for {
		s.mu.RLock()
		standing, there, changed := s.standing(), s.refuse == nil && s.generation > generation, s.changed
		s.mu.RUnlock()
		if there {
			return standing, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return shardcmd.State{}, ctx.Err()
		}
	}
}

// Backlog counts the ids that wait to be published, those twice that wait and were touched again since
// rows were last collected.
func (s *Shard) Backlog() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.unpublished()
}

// Due counts those of them that wait for nothing but the next publication at now or later.
func (s *Shard) Due(now time.Time) (n int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, t := range s.tables {
		if w := s.waiting[name]; w == nil || w.followers != nil || w.due(now) {
			n += t.Touched() + len(s.gone[name])
		}
	}
	return n
}

// unpublished is backlog for who holds mu, for reading at least.
func (s *Shard) unpublished() (n int) {
	for name, t := range s.tables {
		n += t.Touched() + len(s.gone[name])
		if w := s.waiting[name]; w != nil && w.followers != nil {
			n += w.held
		}
	}
	return n
}

// Step counts the applies so far.
func (s *Shard) Step() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.step
}

// Rows counts the rows of each table.
func (s *Shard) Rows() map[string]uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := map[string]uint64{}
	for name, t := range s.tables {
		n[name] = uint64(t.Len())
	}
	return n
}

// Standing is where the shard stands, whether it answers or not.
func (s *Shard) Standing() shardcmd.State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.standing()
}

// standing is where the shard stands. The caller holds mu, for reading at least.
func (s *Shard) standing() shardcmd.State {
	st := shardcmd.State{
		Epoch: s.epoch, Step: s.step, Turn: s.turn, Generation: s.generation, Checkpoint: s.checkpoint,
		Next: s.offsets(),
	}
	if s.cuts.now != nil {
		st.Held = s.cuts.now.id
	}
	return st
}

func (s *Shard) offsets() map[int32]int64 {
	next := make(map[int32]int64, len(s.parts))
	for p, v := range s.parts {
		if v.next > 0 { // else it only keeps an epoch
			next[p] = v.next
		}
	}
	return next
}

// Hash identifies everything the shard holds. Applies wait meanwhile.
func (s *Shard) Hash() (shardcmd.HashResponse, error) {
	s.mu.RLock()
	if s.refuse != nil {
		defer s.mu.RUnlock()
		return shardcmd.HashResponse{}, s.refuse
	}
	h := shardcmd.HashResponse{State: s.standing(), Tables: map[string]string{}, Rows: map[string]uint64{}}
	all := s.copyAll()
	for name, t := range s.tables {
		h.Tables[name], h.Rows[name] = t.Hash(), uint64(t.Len())
	}
	s.mu.RUnlock()
	var err error
	h.Hash, err = checkpoint.HashShard(all)
	return h, err
}
