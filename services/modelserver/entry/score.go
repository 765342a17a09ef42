package entry

import (
	"context"

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
	// MaxBatch is the most rows of one batch.
	MaxBatch int
}

// Answer scores a batch by the newest version that can: while a version is switched, the
// rows of the new one may not be everywhere yet, and those of the old one are not mixed
// in.
func (s *Scorer) Answer(ctx context.Context, versions []*Model, in Input, rec *Recorder) (m *Model, scores [][]float32, err error) {
	for _, m = range versions {
		scores, err = s.score(ctx, m, in, rec)
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
	defer m.scratches.Put(sc)
	if err := sc.load(m, in, s.MaxBatch); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := sc.batch.Seal(); err != nil {
		return nil, status.Errorf(codes.Internal, "model %s: %v", m.want.Model, err)
	}
	sc.lookup.Plan(m.want, sc.batch, rec != nil)
	if err := s.Rows.Lookup(ctx, m.want, sc.lookup); err != nil {
		return nil, err
	}
	w := m.params.Load()
	lane, err := s.Lanes.Get(ctx)
	if err != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	scores, err := m.engine.Score(lane, sc.batch, w, make([][]float32, 0, len(m.outputs)))
	s.Lanes.Put(lane)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "model %s: %v", m.want.Model, err)
	}
	if rec != nil {
		rec.take(m, in, sc, w.Version, scores)
	}
	return scores, nil
}
