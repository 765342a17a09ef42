// Package warmup makes the requests that an export takes along, which a model server replays before the
// version is AVAILABLE: the newest that were answered, from what servers wrote about them.
//
//	topic predictions, its end first ──► impressions by answer ──► requests as the spec takes them ──► TFRecord
package warmup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/impression"
)

const (
	// Default is how many an export takes along.
	Default = 100

	maxFile    = 4 << 20 // bytes of the requests
	maxRead    = 8 << 20 // bytes of records read
	maxRecords = 1 << 16
	firstRun   = 256 // records; each run before it is twice as long
	timeout    = 5 * time.Second
)

// Source is where model servers write what they answered.
type Source struct {
	Brokers []string
	Access  *kafka.Access
	Topic   string
	// Requests is how many are taken.
	Requests int
}

// Sample are the newest requests found.
type Sample struct {
	File     []byte // nil: there are none
	Requests int
	LeftOut  int   // that could not be rebuilt
	Because  error // of one of those
}

// Newest takes the newest requests to the model of spec. It ends in seconds; what was found when it had to end
// early comes beside the error.
func (s Source) Newest(ctx context.Context, spec *model.ModelSpec) (*Sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it took more than %v", timeout))
	defer cancel()
	a := answers{spec: spec}
	err := s.read(ctx, &a)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		err = fmt.Errorf("read requests from topic %s: %w", s.Topic, err)
	}
	sample, ferr := a.sample(s.Requests)
	return sample, errors.Join(err, ferr)
}

var errEnough = errors.New("enough is read")

// read goes through the topic from its end, in runs that end where the one before began, until there
// are enough answers or there are no more.
func (s Source) read(ctx context.Context, a *answers) error {
	begins, ends, err := s.Access.Bounds(ctx, s.Brokers, s.Topic)
	if err != nil {
		return err
	}
	for run := int64(firstRun); len(a.rows) < s.Requests; run *= 2 {
		more := false
		for p := range int32(len(ends)) {
			from := max(begins[p], ends[p]-max(run/int64(len(ends)), 1))
			if from >= ends[p] {
				continue
			}
			more = true
			err := s.Access.ScanRange(ctx, s.Brokers, s.Topic, p, from, ends[p], a.add)
			if errors.Is(err, errEnough) {
				return nil
			}
			if err != nil {
				return err
			}
			ends[p] = from
		}
		if !more {
			return nil
		}
	}
	return nil
}

// answer is one that a server gave: clients may use a request's id again.
type answer struct {
	id, container string
	timeUS        int64
}

// answers are those of a model, by their rows.
type answers struct {
	spec           *model.ModelSpec
	rows           map[answer]map[int]*impression.Impression
	records, bytes int
}

// add notes a record. What is none of an answer of the model is passed over.
func (a *answers) add(r kafka.Record) error {
	if a.records++; a.records > maxRecords || a.bytes+len(r.Value) > maxRead {
		return errEnough
	}
	a.bytes += len(r.Value)
	i, err := impression.Decode(r.Value)
	if err != nil || i.Shadow || i.Model != a.spec.GetName() {
		return nil
	}
	of := answer{i.RequestID, i.Container, i.TimeUS}
	if a.rows == nil {
		a.rows = map[answer]map[int]*impression.Impression{}
	}
	if a.rows[of] == nil {
		a.rows[of] = map[int]*impression.Impression{}
	}
	a.rows[of][i.Row] = i
	return nil
}
