package modelserver

import (
	"context"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

var _ tfserving.Admitter = predictionService{}

// admit lets a call for a model in, or refuses one whose deadline cannot be met. A model that is not configured is
// refused further on, by a sentence of its own.
func (s *Server) admit(ctx context.Context, c caller, name string) (leave func(served bool), err error) {
	if !s.servables.Configured(name) {
		return func(bool) {}, nil
	}
	began := time.Now()
	leave, err = s.gate.Admit(ctx, strings.TrimSuffix(name, ":entry")) // two names of one model
	if err != nil {
		s.counted(c, tfserving.Spec(name, 0), time.Since(began), 0, err)
	}
	return leave, err
}

// Admit implements [tfserving.Admitter].
func (p predictionService) Admit(ctx context.Context, name string) (leave func(served bool), err error) {
	return p.s.admit(ctx, caller{entrypoint: "GRPC"}, name)
}
