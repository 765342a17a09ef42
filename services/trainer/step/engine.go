// Package step turns the records of a batch into what every shard is asked and told: the rows
// that they read, and the gradients of the declared model.
package step

import (
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/model/samplerule"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

var (
	// ErrGradients says that the gradients of a batch are none that a shard takes; nothing
	// was applied.
	ErrGradients = errors.New("the gradients cannot be applied")
	// ErrTooLarge says that a step takes more memory, or a message more bytes, than there may be;
	// nothing was applied.
	ErrTooLarge = errors.New("the step is too large")
)

// Engine is what follows from the model's spec and the configuration; it is shared and never
// changes.
type Engine struct {
	*runtime.Engine
	Bands   [][]modelspec.Band // by shard
	Rounded []bool             // by variable: only products of bfloat16 read it
	// Latest is how late a record may be dated; nil: any time. It is set before the first step.
	Latest func() time.Time
	// Input says how records are read. It is set before the first step.
	Input input.Options
}

// New returns the engine of a model on so many shards, or why no shard could take a step of so
// many records.
func New(spec *model.ModelSpec, shards, batch int) (*Engine, error) {
	if err := modelspec.Trainable(spec); err != nil {
		return nil, err
	}
	samples := batch * samplerule.Samples(spec)
	if reads := modelspec.Reads(spec) * samplerule.Samples(spec); batch*reads > rowwire.MaxIDs {
		return nil, fmt.Errorf("a batch of %d records that read %d rows each has more than %d ids: lower --batch", batch, reads, rowwire.MaxIDs)
	}
	if bytes := modelspec.StepBytes(spec, samples); bytes > modelspec.MaxStepBytes {
		return nil, fmt.Errorf("a step of %d records takes up to %d bytes, %d are sent at once: lower --batch", batch, bytes, modelspec.MaxStepBytes)
	}
	// A record may hold several samples: as many whether they have negatives or not.
	most := min(MaxBatch*samplerule.Samples(spec), runtime.MaxSamples(spec))
	r, err := runtime.New(spec, shards, max(samples, MaxBatch, most))
	if err != nil {
		return nil, err
	}
	if err := modelspec.Spread(r.Variables(), shards); err != nil {
		return nil, err
	}
	e := &Engine{Engine: r}
	if e.Rounded, err = modelspec.Rounded(spec); err != nil {
		return nil, err
	}
	for i := range shards {
		e.Bands = append(e.Bands, modelspec.BandsOf(r.Variables(), i, shards))
	}
	return e, nil
}

// MaxBatch is the most records of one step.
const MaxBatch = 4096
