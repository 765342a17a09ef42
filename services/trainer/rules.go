package trainer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// rules hold a record to more than the model's spec does, as a person would who read it.
type rules struct {
	min, max  float64 // of the label's field; equal: any number
	timeField string  // seconds since 1970 where the record has it; empty: none is looked at
}

// rules are those of the configuration, which Validate has accepted.
func (c *Config) rules() rules {
	r := rules{timeField: c.TimeField}
	if len(c.LabelRange) == 2 {
		r.min, r.max = c.LabelRange[0], c.LabelRange[1]
	}
	return r
}

func validRange(r []float64) bool {
	return len(r) == 0 || len(r) == 2 && r[0] < r[1] && !math.IsInf(r[0], 0) && !math.IsInf(r[1], 0)
}

func (r rules) label(field string, v float64) error {
	if r.min != r.max && (v < r.min || v > r.max) {
		return fmt.Errorf("field %q is %v, outside %v to %v", field, v, r.min, r.max)
	}
	return nil
}

func (r rules) time(fields map[string]json.RawMessage) error {
	if _, ok := fields[r.timeField]; r.timeField == "" || !ok {
		return nil
	}
	s, err := text(fields, r.timeField)
	if err != nil {
		return err
	}
	if v, err := strconv.ParseInt(s, 10, 64); err != nil || v < 0 || v > math.MaxUint32 {
		return fmt.Errorf("field %q is %.40s, not in whole seconds since 1970", r.timeField, fields[r.timeField])
	}
	return nil
}

// runOnce returns an error if a key of the valid object stands there twice: which of the
// values is meant, nobody knows. fields is the object decoded.
func once(object []byte, fields map[string]json.RawMessage) error {
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
