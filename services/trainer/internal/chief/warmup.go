package chief

import (
	"context"
	"errors"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/warmupfile"
)

// warmUp are the requests that an export takes along, as a file of its entry. An export that cannot have
// any is made without.
func (s *Trainer) warmUp(ctx context.Context, spec *model.ModelSpec) map[string][]byte {
	if s.Answered == nil {
		return nil
	}
	sample, err := s.Answered.Newest(ctx, spec)
	switch {
	case errors.Is(err, kafka.ErrNoTopic): // no model server has answered yet, or none writes impressions
		s.Log.Info("an export goes without warm-up requests", "err", err)
	case err != nil:
		s.Log.Warn("not all warm-up requests could be read that an export was to take along", "found", sample.Requests, "err", err)
	}
	if sample.LeftOut > 0 {
		s.Log.Info("some answers cannot be asked for again", "left_out", sample.LeftOut, "because", sample.Because)
	}
	s.Log.Info("warm-up requests of an export", "topic", s.Answered.Topic, "requests", sample.Requests)
	if sample.Requests == 0 {
		return nil
	}
	return map[string][]byte{warmupfile.Name: sample.File}
}
