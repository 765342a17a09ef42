package entry

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// Scorer answers batches with the memory and the connections of one server.
type Scorer struct {
	// Rows asks the serving shards.
	Rows *rows.Client
	// Lanes are where scores are computed.
	Lanes *nn.Lanes
	// MaxBatch is the most rows of one request.
	MaxBatch int
	// Batcher computes requests that come at once together; nil: each by itself.
	Batcher *Batcher
}

// Answer scores a batch by the newest version that can: while a version is switched, the
// rows of the new one may not be everywhere yet, and those of the old one are not mixed
// in.
func (s *Scorer) Answer(ctx context.Context, versions []*Model, in Input, rec *Recorder) (m *Model, scores [][]float32, err error) {
	for _, m = range versions {
		scores, err = s.score(ctx, m, in, rec)
		if errors.As(err, new(overloaded)) {
			break
		}
		if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			break
		}
	}
	return m, scores, err
}

// score answers a batch: ids to rows to scores by task, which are fresh slices. With rec, what the
// answer stood on is handed to it before the scratch is given back.
func (s *Scorer) score(ctx context.Context, m *Model, in Input, rec *Recorder) ([][]float32, error) {
	sc := m.scratches.Get().(*scratch)
	if err := sc.load(m, in, s.MaxBatch); err != nil {
		m.scratches.Put(sc)
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	j := &job{ctx: ctx, in: in, scratch: sc, rec: rec, done: make(chan struct{})}
	if s.Batcher != nil {
		if err := s.Batcher.answer(m, j); err != nil {
			return nil, err
		}
		return j.scores, j.err
	}
	s.alone(ctx, m, j)
	return j.scores, j.err
}

// Run computes batches until ctx ends, where requests are batched.
func (s *Scorer) Run(ctx context.Context) {
	if s.Batcher == nil {
		return
	}
	s.Batcher.compute = s.together
	s.Batcher.run(ctx)
}

// alone computes one job and gives its scratch back.
func (s *Scorer) alone(ctx context.Context, m *Model, j *job) {
	defer m.scratches.Put(j.scratch)
	if err := j.scratch.batch.Seal(); err != nil {
		j.err = status.Errorf(codes.Internal, "model %s: %v", m.want.Model, err)
		return
	}
	var version uint64
	if j.scores, version, j.err = s.compute(ctx, m, j.scratch, j.rec != nil); j.err == nil && j.rec != nil {
		j.rec.take(m, j.in, j.scratch, 0, version, j.scores)
	}
}

// together computes jobs as one batch, or one after the other where that would be too large, and gives
// their scratches back.
func (s *Scorer) together(ctx context.Context, m *Model, jobs []*job) {
	sc := m.scratches.Get().(*scratch)
	defer m.scratches.Put(sc)
	sc.batch.Reset()
	var err error
	recorded := false
	for _, j := range jobs {
		recorded = recorded || j.rec != nil
		if len(jobs) > 1 && err == nil {
			err = sc.batch.Append(j.scratch.batch)
		}
	}
	if len(jobs) == 1 || err != nil || sc.batch.Seal() != nil {
		for _, j := range jobs {
			s.alone(ctx, m, j)
		}
		return
	}
	scores, version, err := s.compute(ctx, m, sc, recorded)
	from := 0
	for _, j := range jobs {
		n := j.scratch.batch.Len()
		m.scratches.Put(j.scratch)
		j.err = err
		for _, all := range scores {
			j.scores = append(j.scores, all[from:from+n:from+n])
		}
		if err == nil && j.rec != nil {
			j.rec.take(m, j.in, sc, from, version, j.scores)
		}
		from += n
	}
}

// compute looks up the rows of a sealed batch and scores it, by the dense variables of a version.
func (s *Scorer) compute(ctx context.Context, m *Model, sc *scratch, withSeqs bool) (scores [][]float32, version uint64, err error) {
	sc.lookup.Plan(m.want, sc.batch, withSeqs)
	if err := s.Rows.Lookup(ctx, m.want, sc.lookup); err != nil {
		return nil, 0, err
	}
	w := m.params.Load()
	lane, err := s.Lanes.Get(ctx)
	if err != nil {
		return nil, 0, status.FromContextError(ctx.Err()).Err()
	}
	scores, err = m.engine.Score(lane, sc.batch, w, make([][]float32, 0, len(m.outputs)))
	s.Lanes.Put(lane)
	if err != nil {
		return nil, 0, status.Errorf(codes.Internal, "model %s: %v", m.want.Model, err)
	}
	return scores, w.Version, nil
}
