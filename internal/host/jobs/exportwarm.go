package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/warmupfile"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/vfs"
	"github.com/monolith-go/monolith/services/trainer/warmup"
)

const maxWarmUp = 16 << 20

// warmUp are the requests that are to be replayed, from a file or from what was answered.
func (c *Export) warmUp(ctx context.Context, spec *model.ModelSpec) (*warmup.Sample, error) {
	if c.Answered.Requests == 0 {
		return readWarmUp(ctx, c.WarmUp)
	}
	access, err := c.Access.Access()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	source := c.Answered.Source(c.BZID, flags.List(c.Kafka), access)
	if source == nil {
		return nil, fmt.Errorf("%w: --warm-up-requests: --kafka must name the brokers that hold them", flags.ErrUsage)
	}
	sample, err := source.Newest(ctx, spec)
	switch {
	case sample.Requests > 0: // as many as there were in time
		return sample, nil
	case err != nil:
		return nil, fmt.Errorf("--warm-up-requests: %w", err)
	case sample.LeftOut > 0:
		return nil, fmt.Errorf("--warm-up-requests: none of %d answers of model %q on topic %s can be asked for again, one of them because of %w", sample.LeftOut, spec.GetName(), source.Topic, sample.Because)
	}
	return nil, fmt.Errorf("--warm-up-requests: topic %s holds no answer of model %q: only requests that ask for it by x-impression: 1, and a sample of the others, leave one", source.Topic, spec.GetName())
}

// readWarmUp reads requests that are to be replayed, none where no file is named.
func readWarmUp(ctx context.Context, path string) (*warmup.Sample, error) {
	if path == "" {
		return &warmup.Sample{}, nil
	}
	data, err := vfs.ReadText(ctx, path, maxWarmUp)
	if err != nil {
		return nil, fmt.Errorf("--warm-up: %w", err)
	}
	n := 0
	for _, err := range warmupfile.Requests(bytes.NewReader(data)) {
		if errors.Is(err, warmupfile.ErrTooMany) {
			return nil, fmt.Errorf("--warm-up %s holds more than %d requests: keep the first ones", path, warmupfile.MaxRequests)
		}
		if err != nil {
			return nil, fmt.Errorf("--warm-up %s: %w", path, err)
		}
		n++
	}
	if n == 0 {
		return nil, fmt.Errorf("--warm-up %s holds 0 requests: give 1 to %d", path, warmupfile.MaxRequests)
	}
	return &warmup.Sample{File: data, Requests: n}, nil
}
