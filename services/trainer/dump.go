package trainer

import (
	"context"
	"sync"
	"time"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/features"
	"github.com/monolith-go/monolith/services/trainer/step"
)

// tellDump bounds how long a step waits until it is said that a file is there.
const tellDump = 5 * time.Second

// dumps are the features of learnt batches on their way to files.
type dumps struct {
	mu     sync.Mutex // guards all, and has learners write one after the other
	out    features.Writer
	of     uint64 // sequence of the featureDumpStarted that is answered; 0: none was yet
	left   uint64 // batches that it is still to have
	failed bool   // nothing more is written for it
}

// wanted says whether the next batch is to be written. A dump that was started before this trainer is another's.
func (d *dumps) wanted(asked lineage.Dump, begin uint64, all bool) bool {
	if asked.Seq > max(begin, d.of) {
		d.of, d.left, d.failed = asked.Seq, asked.Batches, false
	}
	return !d.failed && (all || d.left > 0)
}

// dump writes a batch that every shard has, where that is asked for. Failing to costs a picture of what was learnt,
// so learning goes on.
func (s *Server) dump(ctx context.Context, st *step.Step) {
	if st.Samples() == 0 {
		return
	}
	d := &s.dumps
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.wanted(s.job().Dump, s.begin, s.cfg.DumpFeatures) {
		return
	}
	f, err := d.out.Add(st.Engine.Engine, st.Batch)
	if d.left > 0 {
		if d.left--; d.left == 0 && err == nil && f == nil && !s.cfg.DumpFeatures {
			f, err = d.out.End()
		}
	}
	s.dumped(ctx, f, err)
}

// endDump closes the file that is not full.
func (s *Server) endDump(ctx context.Context) {
	s.dumps.mu.Lock()
	defer s.dumps.mu.Unlock()
	f, err := s.dumps.out.End()
	s.dumped(ctx, f, err)
}

// dumped says that a file is there, or gives the dump up. The caller holds mu.
func (s *Server) dumped(ctx context.Context, f *features.File, err error) {
	d := &s.dumps
	if err != nil {
		d.failed = true
		s.log.Warn("features are not written any more, until somebody asks for some again", "err", err)
		return
	}
	if f == nil {
		return
	}
	fact := &training.FeaturesDumped{Trainer: s.cfg.Name, Path: f.Path, Batches: uint32(f.Batches), Samples: f.Samples, Bytes: f.Bytes}
	if !s.cfg.DumpFeatures {
		fact.Dump = d.of
	}
	ctx, cancel := context.WithTimeout(ctx, tellDump)
	defer cancel()
	if err := s.tell(ctx, &training.Event{Body: &training.Event_FeaturesDumped{FeaturesDumped: fact}}); err != nil {
		s.log.Warn("a file of features is there, and it could not be said", "path", f.Path, "err", err)
	}
}
