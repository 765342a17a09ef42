// Package state is what one shard of a parameter server holds in memory: rows and dense
// variables as a fold of applies, each range of Kafka records taken exactly once, and the cuts
// that hold it still for a checkpoint. It opens no file and no connection; whoever runs it
// restores it, publishes what it hands over and writes what it copies.
package state

import (
	"sync"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/table"
)

// variable is a dense variable, or a band of one, with its optimizer's slots.
type variable struct{ values, slots []float32 }

// partition is how far one Kafka partition has been learnt.
type partition struct {
	epoch uint64 // highest lease epoch that asked; 0 after a restore
	next  int64
}

// Shard is everything that the shard knows. mu makes an apply atomic: rows, variables,
// offsets, listed rows and pending ranges change together or not at all.
type Shard struct {
	*schema

	mu      sync.RWMutex
	changed chan struct{}  // closed, and replaced, whenever somebody who waits should look again
	refuse  *rowwire.Error // why the shard does not answer now; nil: it does

	epoch      uint64
	step       uint64
	turn       uint64
	generation uint64
	checkpoint int64

	tables  map[string]*table.Table
	filters map[string]*admission // of the tables that have one
	expiry  map[string]*expiry    // of the tables whose rows expire
	dense   map[bandID]*variable
	parts   map[int32]*partition
	staged  staging

	// Rows to publish are listed by their tables. gone has for each table the ids without
	// a row that followers may have one of.
	gone         map[string]map[int64]struct{}
	denseTouched bool
	ranges       []*delta.Range      // learnt since rows were last collected
	learnt       []learnt            // before that, oldest first, whose rows have not all been
	waiting      map[string]*waiting // of the tables that put rows off
	round        uint64              // how often rows were collected
	applies      int                 // since what was last collected
	trace        string              // of a sampled apply among them
	assigned     requests            // the latest; the checkpoint has them too

	cuts cuts
}

// New makes the shard that cfg names of a job that trains spec. It refuses everything until
// it has been loaded and resumed.
func New(cfg Config, spec *model.ModelSpec) (*Shard, error) {
	f, err := newSchema(cfg, spec)
	if err != nil {
		return nil, err
	}
	return newShard(f), nil
}

func newShard(f *schema) *Shard {
	return &Shard{
		schema: f, changed: make(chan struct{}),
		refuse: rowwire.Errorf(rowwire.Unavailable, "shard %d of job %q is starting; try again", f.shard, f.job),
	}
}

// tell wakes everybody who waits for a change. The caller holds mu.
func (s *Shard) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Suspend refuses everything from now on and ends the cut in progress.
func (s *Shard) Suspend(why *rowwire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = why
	s.staged.drop()
	s.cuts.end("the shard stopped answering: " + why.Message)
	s.tell()
}

// Resume answers again, as the writer of epoch.
func (s *Shard) Resume(epoch, generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse, s.epoch, s.generation = nil, epoch, generation
	s.tell()
}

// Refusal is why the shard does not answer now, nil if it does, and what is closed when that
// may have changed.
func (s *Shard) Refusal() (why *rowwire.Error, changed <-chan struct{}) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.refuse, s.changed
}
