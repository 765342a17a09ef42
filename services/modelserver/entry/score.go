package entry

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/model/runtime"
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
	// Batcher computes requests that come at once together, as its parameters say; nil: those join that come
	// while as many of a version are computed as the processors take.
	Batcher *Batcher
	// Joined counts these; nil: nobody does.
	Joined prometheus.Counter
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
	if err := left(ctx); err != nil {
		return nil, err
	}
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
	if err := m.joiner.answer(j, Slots(s.Lanes), func(ctx context.Context, jobs []*job) { s.together(ctx, m, jobs) }); err != nil {
		return nil, err
	}
	if j.joined && s.Joined != nil {
		s.Joined.Inc()
	}
	return j.scores, j.err
}

// Slots is how many requests for a version are computed at once before others join: as many look up rows
// while as many compute.
func Slots(lanes *nn.Lanes) int { return 2 * lanes.Threads() }

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
	if err := j.scratch.batch.SealToScore(); err != nil {
		j.err = status.Errorf(codes.Internal, "model %s: %v", m.want.Model, err)
		return
	}
	s.compute(ctx, m, []part{{j.scratch, []*job{j}}})
}

// part is a batch, and the jobs whose rows it has one after another.
type part struct {
	scratch *scratch
	jobs    []*job
}

// together looks up the rows of jobs at once and computes as one batch those whose rows have nothing in
// common, or one job after the other where they are too much, and gives their scratches back.
func (s *Scorer) together(ctx context.Context, m *Model, jobs []*job) {
	if len(jobs) == 1 {
		s.alone(ctx, m, jobs[0])
		return
	}
	sc := m.scratches.Get().(*scratch)
	defer m.scratches.Put(sc)
	parts, err := partsOf(sc, jobs)
	if err != nil {
		for _, j := range jobs {
			s.alone(ctx, m, j)
		}
		return
	}
	s.compute(ctx, m, parts)
	for _, j := range jobs {
		m.scratches.Put(j.scratch)
	}
}

// partsOf seals the batches of jobs: of those with something in common, whose part of the score is computed
// once, each by itself, of the others all as one in sc.
func partsOf(sc *scratch, jobs []*job) (parts []part, err error) {
	sc.batch.Reset()
	var rest []*job
	for _, j := range jobs {
		if j.scratch.batch.Shares() {
			parts = append(parts, part{j.scratch, []*job{j}})
			continue
		}
		if err := sc.batch.Append(j.scratch.batch); err != nil {
			return nil, err
		}
		rest = append(rest, j)
	}
	if len(rest) > 0 {
		parts = append(parts, part{sc, rest})
	}
	for _, p := range parts {
		if err := p.scratch.batch.SealToScore(); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// compute looks up the rows of sealed batches, all at once, and scores each, by the dense variables of a
// version. With a job's rec, what its answer stood on is handed to that before the scratch is used again.
func (s *Scorer) compute(ctx context.Context, m *Model, parts []part) {
	version, err := s.scored(ctx, m, parts)
	for _, p := range parts {
		from := 0
		for _, j := range p.jobs {
			n := j.scratch.batch.Len()
			if j.err = err; err == nil {
				for _, all := range p.scratch.scores {
					j.scores = append(j.scores, all[from:from+n:from+n])
				}
			}
			if err == nil && j.rec != nil {
				j.rec.take(m, j.in, p.scratch, from, version, j.scores)
			}
			from += n
		}
		p.scratch.scores, p.scratch.asked = nil, nil
	}
}

// scored leaves the scores of sealed batches in their scratches, which are fresh slices.
func (s *Scorer) scored(ctx context.Context, m *Model, parts []part) (version uint64, err error) {
	lookup, recorded := parts[0].scratch.lookup, false
	batches := make([]*runtime.Batch, len(parts))
	for i, p := range parts {
		batches[i], p.scratch.asked, p.scratch.nth = p.scratch.batch, lookup, i
		recorded = recorded || slices.ContainsFunc(p.jobs, func(j *job) bool { return j.rec != nil })
	}
	lookup.Plan(m.want, recorded, batches...)
	if err := s.Rows.Lookup(ctx, m.want, lookup); err != nil {
		return 0, cmp.Or(left(ctx), err) // no replica is to blame for a caller who waits no longer
	}
	w := m.params.Load()
	lane, err := s.Lanes.Get(ctx)
	if err != nil {
		return 0, status.FromContextError(ctx.Err()).Err()
	}
	defer s.Lanes.Put(lane)
	for i, p := range parts {
		if p.scratch.scores, err = m.engine.Score(lane, batches[i], w, make([][]float32, 0, len(m.outputs))); err != nil {
			return 0, status.Errorf(codes.Internal, "model %s: %v", m.want.Model, err)
		}
	}
	return w.Version, nil
}
