package trainer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// maxID bounds an id: a feature id keeps its lower 48 bits.
const maxID = 1<<48 - 1

// sample is one record as the model reads it.
type sample struct {
	fids  []int64 // by feature
	label float32
}

// parse reads a training record by the spec: one JSON object in which each feature's
// field is a whole number of 0 to 2^48-1 and the label's field any number; both may be
// written as strings. No field stands there twice; those that neither the spec nor the
// rules name are passed over. The error is a sentence for the dead letter.
func (r rules) parse(spec *model.ModelSpec, value []byte, fids []int64) (sample, error) {
	if len(bytes.TrimSpace(value)) == 0 {
		return sample{}, fmt.Errorf("the record is empty")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(value, &fields); err != nil {
		return sample{}, fmt.Errorf("the record is not one JSON object: %w", err)
	}
	if err := once(value, fields); err != nil {
		return sample{}, err
	}
	for i, f := range spec.GetFeatures() {
		id, err := wholeNumber(fields, f.GetField())
		if err != nil {
			return sample{}, err
		}
		fids[i] = modelspec.FID(f.GetSlot(), id)
	}
	v, err := number(fields, spec.GetLabel().GetField())
	if err != nil {
		return sample{}, err
	}
	if err := r.label(spec.GetLabel().GetField(), v); err != nil {
		return sample{}, err
	}
	if err := r.time(fields); err != nil {
		return sample{}, err
	}
	return sample{fids, modelspec.LabelOf(spec, v)}, nil
}

func text(fields map[string]json.RawMessage, field string) (string, error) {
	raw, ok := fields[field]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return "", fmt.Errorf("field %q is missing", field)
	}
	s := string(raw)
	if raw[0] == '"' {
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", fmt.Errorf("field %q: %w", field, err)
		}
	}
	return s, nil
}

func wholeNumber(fields map[string]json.RawMessage, field string) (int64, error) {
	s, err := text(fields, field)
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("field %q is %.40s, not a whole number", field, fields[field])
	}
	if id < 0 || id > maxID {
		return 0, fmt.Errorf("field %q is %d, outside 0 to 2^48-1", field, id)
	}
	return id, nil
}

func number(fields map[string]json.RawMessage, field string) (float64, error) {
	s, err := text(fields, field)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("field %q is %.40s, not a number", field, fields[field])
	}
	return v, nil
}

// rejected is a record that cannot be learnt, and why.
type rejected struct {
	record kafka.Record
	reason string
}
