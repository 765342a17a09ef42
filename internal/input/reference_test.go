package input

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// reference reads JSON records as encoding/json does, into a map: what a Decoder is held to.
func reference(spec *model.ModelSpec, o Options, record []byte) (Sample, error) {
	if len(bytes.TrimSpace(record)) == 0 {
		return Sample{}, fmt.Errorf("the record is empty")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(record, &fields); err != nil {
		return Sample{}, fmt.Errorf("the record is not one JSON object: %w", err)
	}
	if err := referenceOnce(record, fields); err != nil {
		return Sample{}, err
	}
	var s Sample
	for _, f := range spec.GetFeatures() {
		id, err := referenceWhole(fields, f.GetField())
		if err != nil {
			return Sample{}, err
		}
		s.IDs = append(s.IDs, modelspec.FID(f.GetSlot(), id))
	}
	field := spec.GetLabel().GetField()
	text, err := referenceText(fields, field)
	if err != nil {
		return Sample{}, err
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return Sample{}, fmt.Errorf("field %q is %.40s, not a number", field, fields[field])
	}
	if o.Min != o.Max && (v < o.Min || v > o.Max) {
		return Sample{}, fmt.Errorf("field %q is %v, outside %v to %v", field, v, o.Min, o.Max)
	}
	if _, ok := fields[o.TimeField]; o.TimeField != "" && ok {
		text, err := referenceText(fields, o.TimeField)
		if err != nil {
			return Sample{}, err
		}
		if v, err := strconv.ParseInt(text, 10, 64); err != nil || v < 0 || v > math.MaxUint32 {
			return Sample{}, fmt.Errorf("field %q is %.40s, not in whole seconds since 1970", o.TimeField, fields[o.TimeField])
		}
	}
	s.Label = modelspec.LabelOf(spec, v)
	return s, nil
}

func referenceWhole(fields map[string]json.RawMessage, field string) (int64, error) {
	s, err := referenceText(fields, field)
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("field %q is %.40s, not a whole number", field, fields[field])
	}
	if id < 0 || id > modelspec.MaxID {
		return 0, fmt.Errorf("field %q is %d, outside 0 to 2^48-1", field, id)
	}
	return id, nil
}

func referenceText(fields map[string]json.RawMessage, field string) (string, error) {
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

// referenceOnce returns an error if a key of the valid object stands there twice. fields is the
// object decoded.
func referenceOnce(object []byte, fields map[string]json.RawMessage) error {
	members, depth, inString := 0, 0, false
	for i := 0; i < len(object); i++ {
		switch c := object[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ':' && depth == 1:
			members++
		}
	}
	if members == len(fields) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(object))
	_, err := d.Token()
	for seen := map[string]bool{}; err == nil && d.More(); {
		var key json.Token
		if key, err = d.Token(); err != nil {
			break
		}
		name, _ := key.(string)
		if seen[name] {
			return fmt.Errorf("field %q stands there twice", name)
		}
		seen[name] = true
		var value json.RawMessage
		err = d.Decode(&value)
	}
	return fmt.Errorf("a field stands there twice")
}
