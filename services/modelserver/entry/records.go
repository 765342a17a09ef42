package entry

import (
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// Input is what a caller asks about.
type Input struct {
	// Tensors are the rows by column, under the names of the signature's inputs, or one of the
	// inputs that stand for them all: examples, instances or example_batch.
	Tensors map[string]*tfserving.TensorProto
	// Examples are serialized tf.train.Examples, one a row; where they are set, Tensors are not.
	Examples [][]byte
}

// recordInput is an input that stands for all others: a string tensor of records, which are read as
// the trainer reads them.
type recordInput struct {
	name, holds string
	format      input.Format
	at          int // in recordInputs
}

// recordInputs are named as Monolith's models name their placeholders.
var recordInputs = [...]recordInput{
	{"examples", "one serialized tf.train.Example for each row", input.Example, 0},
	{"instances", "one serialized Monolith Instance for each row", input.Instance, 1},
	{"example_batch", "serialized Monolith ExampleBatches, whose samples are the rows", input.ExampleBatch, 2},
}

// recordTensor makes a batch of the strings of a tensor.
func (sc *scratch) recordTensor(m *Model, r *recordInput, t *tfserving.TensorProto, limit int) (err error) {
	if dims := t.GetTensorShape().GetDim(); len(dims) != 1 && (len(dims) != 0 || r.format != input.ExampleBatch) {
		return fmt.Errorf("input %q has %d dimensions; want %s: shape [n]", r.name, len(dims), r.holds)
	}
	if sc.texts, err = tfserving.Strings(sc.texts[:0], t, limit); err != nil {
		return fmt.Errorf("input %q: %w; want %s", r.name, err, r.holds)
	}
	defer clear(sc.texts)
	return sc.records(m, r, sc.texts, limit)
}

// records makes a batch of serialized records.
func (sc *scratch) records(m *Model, r *recordInput, records [][]byte, limit int) error {
	if sc.decoders[r.at] == nil {
		sc.decoders[r.at] = input.New(m.spec, input.Options{Format: r.format, Serving: true})
	}
	for i, record := range records {
		if err := sc.decoders[r.at].Into(sc.batch, record, input.Position{}); err != nil {
			return fmt.Errorf("input %q, row %d: %w", r.name, i, err)
		}
		if sc.batch.Len() > limit {
			return fmt.Errorf("input %q has more than %d rows; send a smaller batch", r.name, limit)
		}
	}
	if sc.batch.Len() == 0 {
		return errors.New("the batch is empty; send at least one row")
	}
	return nil
}
