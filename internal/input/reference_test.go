package input

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-faster/city"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
)

// reference reads JSON records as encoding/json does, into a map: what a Decoder is held to.
func reference(spec *model.ModelSpec, o Options, record []byte) (s runtime.Sample, err error) {
	if len(bytes.TrimSpace(record)) == 0 {
		return s, fmt.Errorf("the record is empty")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(record, &object); err != nil {
		return s, fmt.Errorf("the record is not one JSON object: %w", err)
	}
	fields := members(object)
	if err := referenceOnce(record, object); err != nil {
		return s, err
	}
	for _, f := range spec.GetFeatures() {
		if len(f.GetCross()) > 0 {
			s.IDs = append(s.IDs, nil)
			continue
		}
		ids, err := fields.feature(f)
		if err != nil {
			return s, err
		}
		s.IDs = append(s.IDs, ids)
	}
	for _, f := range spec.GetFloats() {
		numbers, err := fields.floats(f)
		if err != nil {
			return s, err
		}
		s.Floats = append(s.Floats, numbers)
	}
	tasks := modelspec.Tasks(spec)
	if len(tasks) == 0 {
		tasks = []*model.Task{{}}
	}
	for i, t := range tasks {
		weight, err := fields.weight(t)
		if err != nil {
			return s, err
		}
		if i > 0 {
			o.Min, o.Max = 0, 0 // bounds are of the first label
		}
		label, err := fields.label(cmp.Or(t.GetLabel(), spec.GetLabel()), weight, o)
		if err != nil {
			return s, err
		}
		s.Weights, s.Labels = append(s.Weights, float32(min(weight, math.MaxFloat32))), append(s.Labels, label)
	}
	return s, fields.time(o.TimeField)
}

// members are the fields of a record, as they stand there.
type members map[string]json.RawMessage

// values are a field's values, and what each is called in a sentence.
func (fields members) values(field string) (texts []string, quoted []bool, what []string) {
	raw, ok := fields[field]
	if !ok || string(raw) == "null" {
		return nil, nil, nil
	}
	all := []json.RawMessage{raw}
	if raw[0] == '[' {
		all = nil
		if err := json.Unmarshal(raw, &all); err != nil {
			panic(err)
		}
	}
	for i, v := range all {
		text := string(v)
		if v[0] == '"' {
			if err := json.Unmarshal(v, &text); err != nil {
				panic(err)
			}
		}
		name := fmt.Sprintf("field %q", field)
		if raw[0] == '[' {
			name = fmt.Sprintf("field %q, value %d,", field, i+1)
		}
		texts, quoted, what = append(texts, text), append(quoted, v[0] == '"'), append(what, name+" is "+fmt.Sprintf("%.40s", []byte(v)))
	}
	return texts, quoted, what
}

func (fields members) number(field string) (float64, error) {
	raw, ok := fields[field]
	if !ok || string(raw) == "null" {
		return 0, fmt.Errorf("field %q is missing", field)
	}
	text := string(raw)
	if raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			panic(err)
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("field %q is %.40s, not a number", field, raw)
	}
	return v, nil
}

func (fields members) feature(f *model.Feature) (ids []int64, _ error) {
	texts, quoted, what := fields.values(f.GetField())
	for i, text := range texts {
		id, err := strconv.ParseInt(text, 10, 64)
		switch {
		case f.GetIds() == model.Feature_HASH && (quoted[i] || err == nil):
			id = int64(city.Hash64([]byte(text)) % (1 << 48))
		case f.GetIds() == model.Feature_HASH:
			return nil, fmt.Errorf("%s, which has no bytes to hash: write a string, or a whole number", what[i])
		case err != nil:
			return nil, fmt.Errorf("%s, not a whole number", what[i])
		case f.GetIds() == model.Feature_FID && (id < 0 || id>>48 != int64(f.GetSlot())):
			return nil, fmt.Errorf("%s%d, a feature id of slot %d, and feature %q has slot %d", what[i][:strings.Index(what[i], " is ")+4], id, uint64(id)>>48, f.GetName(), f.GetSlot())
		case f.GetIds() != model.Feature_FID && (id < 0 || id > modelspec.MaxID):
			return nil, fmt.Errorf("%s%d, outside 0 to 2^48-1", what[i][:strings.Index(what[i], " is ")+4], id)
		}
		ids = append(ids, modelspec.FID(f.GetSlot(), id))
	}
	if len(texts) == 0 && f.GetMissing() == model.Feature_REJECT {
		return nil, fmt.Errorf("field %q is missing", f.GetField())
	}
	if len(texts) == 0 {
		for _, id := range f.GetDefaultIds() {
			ids = append(ids, modelspec.FID(f.GetSlot(), int64(id)))
		}
	}
	return ids, nil
}

func (fields members) floats(f *model.Float) (numbers []float32, _ error) {
	texts, _, what := fields.values(f.GetField())
	for i, text := range texts {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(v) || math.Abs(v) > math.MaxFloat32 && math.IsInf(float64(float32(v)), 0) {
			return nil, fmt.Errorf("%s, not a number", what[i])
		}
		numbers = append(numbers, float32(v))
	}
	dim := int(max(f.GetDim(), 1))
	if len(texts) == 0 && f.GetMissing() == model.Feature_REJECT {
		return nil, fmt.Errorf("field %q is missing", f.GetField())
	}
	if len(texts) == 0 {
		numbers = slices.Repeat([]float32{f.GetDefault()}, dim)
	}
	if len(numbers) != dim {
		return nil, fmt.Errorf("field %q has %d numbers, %d are read", f.GetField(), len(numbers), dim)
	}
	return numbers, nil
}

func (fields members) weight(t *model.Task) (float64, error) {
	weight := 1.0
	for _, field := range []string{t.GetWeightField(), t.GetMaskField()} {
		if texts, _, _ := fields.values(field); field == "" || len(texts) == 0 {
			continue
		}
		v, err := fields.number(field)
		if err != nil {
			return 0, err
		}
		if v < 0 || v > math.MaxFloat32 {
			return 0, fmt.Errorf("field %q is %v: a weight is a finite number of 0 or more", field, v)
		}
		weight *= v
	}
	return weight, nil
}

// label is a task's, 0 where it is missing and counts for nothing.
func (fields members) label(l *model.Label, weight float64, o Options) (float32, error) {
	if texts, _, _ := fields.values(l.GetField()); len(texts) == 0 && weight == 0 {
		return 0, nil
	}
	v, err := fields.number(l.GetField())
	if err != nil {
		return 0, err
	}
	if o.Min != o.Max && (v < o.Min || v > o.Max) {
		return 0, fmt.Errorf("field %q is %v, outside %v to %v", l.GetField(), v, o.Min, o.Max)
	}
	label := float32(v)
	if !l.GetRaw() {
		if label = 0; v >= l.GetThreshold() {
			label = 1
		}
	}
	if math.IsInf(float64(label), 0) {
		return 0, fmt.Errorf("field %q is %v, beyond what a label can be", l.GetField(), v)
	}
	return label, nil
}

// time checks the record's time, which samples do not carry.
func (fields members) time(field string) error {
	raw, ok := fields[field]
	if field == "" || !ok {
		return nil
	}
	texts, _, _ := fields.values(field)
	if string(raw) == "null" {
		return fmt.Errorf("field %q is missing", field)
	}
	if raw[0] == '[' {
		texts = []string{""}
	}
	if v, err := strconv.ParseInt(texts[0], 10, 64); err != nil || v < 0 || v > math.MaxUint32 {
		return fmt.Errorf("field %q is %.40s, not in whole seconds since 1970", field, raw)
	}
	return nil
}

// sameSample says whether two samples read alike.
func sameSample(a, b runtime.Sample) bool {
	return slices.EqualFunc(a.IDs, b.IDs, slices.Equal) && slices.EqualFunc(a.Floats, b.Floats, slices.Equal) &&
		slices.Equal(a.Labels, b.Labels) && slices.Equal(a.Weights, b.Weights)
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
