package state

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
)

// keptCuts bounds the memory of cuts that have ended.
const keptCuts = 64

// cut is one checkpoint cut in progress: applies wait, but for those up to the targets.
type cut struct {
	id      string
	targets map[int32]int64 // nil: not yet told
	until   time.Time
	timer   *time.Timer
	file    *training.ShardFile // of the snapshot taken
	saved   int64               // checkpoint id of file
}

// cuts are guarded by Shard.mu.
type cuts struct {
	now   *cut
	chief uint64 // epoch of the latest chief that held the shard
	ended map[string]ended
	order []string // of ended, oldest first
}

type ended struct {
	why   string // empty: released
	file  *training.ShardFile
	saved int64
}

// end closes the cut in progress; why is empty when its owner released it.
func (c *cuts) end(why string) {
	if c.now == nil {
		return
	}
	c.now.timer.Stop()
	if c.ended == nil {
		c.ended = map[string]ended{}
	}
	if len(c.order) == keptCuts {
		delete(c.ended, c.order[0])
		c.order = c.order[1:]
	}
	c.ended[c.now.id] = ended{why: why, file: c.now.file, saved: c.now.saved}
	c.order = append(c.order, c.now.id)
	c.now = nil
}

// bars says why a range up to `to` of a partition must wait, "" if it need not.
func (c *cuts) bars(partition int32, to int64) string {
	if c.now == nil || to <= c.now.targets[partition] {
		return ""
	}
	return fmt.Sprintf("checkpoint cut %q holds the shard", c.now.id)
}

// held returns the cut in progress if it is the one named, or the refusal.
func (c *cuts) held(id string) (*cut, error) {
	if c.now != nil && c.now.id == id {
		return c.now, nil
	}
	if e, ok := c.ended[id]; ok {
		why := e.why
		if why == "" {
			why = "it was released"
		}
		return nil, bus.Refuse(bus.CodeConflict, "cut %q is over: %s; begin a new one", id, why)
	}
	if c.now != nil {
		return nil, bus.Refuse(bus.CodeConflict, "cut %q holds the shard, not %q: wait until it ends", c.now.id, id)
	}
	return nil, bus.Refuse(bus.CodeNotFound, "cut %q is not known here: begin with hold", id)
}

// Hold makes applies wait. Holding the same cut again changes nothing.
func (s *Shard) Hold(r shardcmd.HoldRequest, timeout time.Duration) (shardcmd.State, error) {
	if r.Cut == "" || len(r.Cut) > 256 {
		return shardcmd.State{}, bus.Refuse(bus.CodeInvalid, "a cut needs a name of 1 to 256 bytes")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return shardcmd.State{}, s.refuse
	}
	if err := s.sameTimeline(r.Generation); err != nil {
		return shardcmd.State{}, err
	}
	if r.Chief != 0 && r.Chief < s.cuts.chief {
		return shardcmd.State{}, bus.Refuse(bus.CodeConflict, "cut %q is of chief %d, chief %d has followed it: leave checkpoints to that one", r.Cut, r.Chief, s.cuts.chief)
	}
	_, over := s.cuts.ended[r.Cut]
	if !over && r.Chief > s.cuts.chief { // whoever began the one in progress leads no more
		s.cuts.end(fmt.Sprintf("chief %d has begun another one", r.Chief))
		s.tell()
	}
	s.cuts.chief = max(s.cuts.chief, r.Chief)
	if over || s.cuts.now != nil {
		if _, err := s.cuts.held(r.Cut); err != nil {
			return shardcmd.State{}, err
		}
		return s.standing(), nil
	}
	c := &cut{id: r.Cut, until: time.Now().Add(timeout)}
	c.timer = time.AfterFunc(timeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.cuts.now == c {
			s.cuts.end(fmt.Sprintf("it was not finished within %v, so the shard released itself", timeout))
			s.tell()
		}
	})
	s.cuts.now = c
	return s.standing(), nil
}

// Succeeded refuses a chief whom another one has followed, as far as the shard knows; 0 is nobody in particular.
func (s *Shard) Succeeded(chief uint64) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if chief != 0 && chief < s.cuts.chief {
		return bus.Refuse(bus.CodeConflict, "chief %d has followed chief %d: leave checkpoints to that one", s.cuts.chief, chief)
	}
	return nil
}

// Advance lets applies up to the targets through and returns once all are recorded.
func (s *Shard) Advance(ctx context.Context, r shardcmd.AdvanceRequest) (shardcmd.State, error) {
	first := true
	for {
		s.mu.Lock()
		c, err := s.cuts.held(r.Cut)
		if err == nil && first {
			err = s.setTargets(c, r.Targets)
			first = false
		}
		missing := ""
		if err == nil {
			missing, err = s.missing(c)
		}
		standing, changed := s.standing(), s.changed
		s.mu.Unlock()
		if err != nil {
			return shardcmd.State{}, err
		}
		if missing == "" {
			return standing, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return shardcmd.State{}, bus.Refuse(bus.CodeUnavailable, "cut %q: %s; ask again, or release it", r.Cut, missing)
		}
	}
}

// setTargets sets the targets of c, once. The caller holds mu.
func (s *Shard) setTargets(c *cut, targets map[int32]int64) error {
	if targets == nil {
		targets = map[int32]int64{}
	}
	if c.targets != nil {
		if !maps.Equal(c.targets, targets) {
			return bus.Refuse(bus.CodeConflict, "cut %q has other targets already: begin a new cut", c.id)
		}
		return nil
	}
	c.targets = maps.Clone(targets)
	s.tell()
	return nil
}

// missing says what c still waits for; beyond its targets a cut is impossible. The
// caller holds mu.
func (s *Shard) missing(c *cut) (string, error) {
	for p, v := range s.parts {
		if v.next > c.targets[p] {
			return "", bus.Refuse(bus.CodeConflict, "cut %q: partition %d is recorded up to %d, beyond the target %d: begin a new cut with the greatest recorded offsets", c.id, p, v.next, c.targets[p])
		}
	}
	for p, to := range c.targets {
		var next int64
		if v := s.parts[p]; v != nil {
			next = v.next
		}
		if next < to {
			return fmt.Sprintf("partition %d is recorded up to %d, %d is the target", p, next, to), nil
		}
	}
	return "", nil
}

// CheckCut refuses the snapshot that r asks for unless [Shard.CopyCut] would make it.
func (s *Shard) CheckCut(r shardcmd.SnapshotRequest) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, err := s.atCut(r)
	return err
}

// atCut is c's state if every target is recorded. The caller holds mu, for reading.
func (s *Shard) atCut(r shardcmd.SnapshotRequest) (*cut, error) {
	c, err := s.cuts.held(r.Cut)
	if err != nil {
		return nil, err
	}
	if err := s.sameTimeline(r.Generation); err != nil {
		return nil, err
	}
	if c.targets == nil {
		return nil, bus.Refuse(bus.CodeConflict, "cut %q has no targets yet: advance comes before snapshot", c.id)
	}
	missing, err := s.missing(c)
	if err != nil {
		return nil, err
	}
	if missing != "" {
		return nil, bus.Refuse(bus.CodeConflict, "cut %q: %s: advance comes before snapshot", c.id, missing)
	}
	if s.deterministic && r.Turn != 0 && r.Turn != s.turn {
		return nil, bus.Refuse(bus.CodeConflict, "cut %q is at turn %d here, not %d: begin a new cut", c.id, s.turn, r.Turn)
	}
	return c, nil
}

// CopyCut copies everything while the cut holds it still.
func (s *Shard) CopyCut(r shardcmd.SnapshotRequest, syncSeq uint64) (*checkpoint.Shard, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if _, err := s.atCut(r); err != nil {
		return nil, err
	}
	c := s.copyAll()
	c.Manifest.Checkpoint, c.Manifest.SyncSeq = r.Checkpoint, syncSeq
	return c, nil
}

// Taken returns the snapshot that this cut has taken before, nil if none; another
// checkpoint under the same cut is refused.
func (s *Shard) Taken(r shardcmd.SnapshotRequest) (*training.ShardFile, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	file, saved := s.cuts.ended[r.Cut].file, s.cuts.ended[r.Cut].saved
	if c := s.cuts.now; c != nil && c.id == r.Cut {
		file, saved = c.file, c.saved
	}
	if file != nil && saved != r.Checkpoint {
		return nil, bus.Refuse(bus.CodeConflict, "cut %q was saved as checkpoint %d, not %d: begin a new cut", r.Cut, saved, r.Checkpoint)
	}
	return file, nil
}

// Took remembers the snapshot of a cut, which may have ended while it was written.
func (s *Shard) Took(r shardcmd.SnapshotRequest, file *training.ShardFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.cuts.now; c != nil && c.id == r.Cut {
		c.file, c.saved = file, r.Checkpoint
	} else if e, ok := s.cuts.ended[r.Cut]; ok {
		e.file, e.saved = file, r.Checkpoint
		s.cuts.ended[r.Cut] = e
	}
}

// Release ends the cut. A cut that ended with its snapshot taken is released already.
func (s *Shard) Release(r shardcmd.ReleaseRequest) (shardcmd.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.cuts.ended[r.Cut]; ok && (e.why == "" || e.file != nil) {
		return s.standing(), nil
	}
	if _, err := s.cuts.held(r.Cut); err != nil {
		return shardcmd.State{}, err
	}
	s.cuts.end("")
	s.tell()
	return s.standing(), nil
}

func (s *Shard) sameTimeline(generation uint64) error {
	if s.deterministic && generation != s.generation {
		return bus.Refuse(bus.CodeConflict, "generation %d was asked for, the shard is in %d: begin a new cut there", generation, s.generation)
	}
	return nil
}
