package modelspec

import (
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/events/model"
)

// Slice is columns From to To (excluded) of a feature's rows.
type Slice struct {
	Feature  string
	From, To int
}

// Output is how slices are put together: one tensor, or with NONE one for each slice.
type Output struct {
	Name   string
	Type   model.Output_Type
	Slices []Slice
	Shapes [][]int // of each tensor, for one sample
}

// columns are what a table's rows consist of: from is where a segment begins.
func columns(t *model.Table, segment string) (from, to int, ok bool) {
	at := 0
	for _, s := range t.GetSegments() {
		if s.GetName() == segment && segment != "" {
			return at, at + int(s.GetDim()), true
		}
		at += int(s.GetDim())
	}
	return 0, 0, false
}

// resolve finds what an output says: a feature, "feature.segment", "*.segment" or "*".
func resolve(spec *model.ModelSpec, word string) ([]Slice, error) {
	for _, f := range spec.GetFeatures() {
		if f.GetName() == word {
			return []Slice{{word, 0, int(Table(spec, f.GetTable()).GetDim())}}, nil
		}
	}
	var found []Slice
	if word == "*" {
		for _, f := range spec.GetFeatures() {
			if f.GetPooling() != model.Feature_FIRSTN {
				found = append(found, Slice{f.GetName(), 0, int(Table(spec, f.GetTable()).GetDim())})
			}
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("slice %q is of no feature, as all are FIRSTN: name them", word)
		}
		return found, nil
	}
	dot := strings.LastIndexByte(word, '.')
	if dot < 0 {
		return nil, fmt.Errorf("slice %q is of no declared feature: name a feature, \"feature.segment\", \"*.segment\" or \"*\"", word)
	}
	feature, segment, known := word[:dot], word[dot+1:], false
	for _, f := range spec.GetFeatures() {
		if feature != "*" && feature != f.GetName() {
			continue
		}
		known = true
		if from, to, ok := columns(Table(spec, f.GetTable()), segment); ok {
			found = append(found, Slice{f.GetName(), from, to})
		}
	}
	switch {
	case !known:
		return nil, fmt.Errorf("slice %q is of no declared feature: name a feature, \"feature.segment\", \"*.segment\" or \"*\"", word)
	case len(found) == 0:
		return nil, fmt.Errorf("slice %q: no segment is called %q: give a segment of the feature's table that name", word, segment)
	}
	return found, nil
}

// output resolves a declared output.
func output(spec *model.ModelSpec, o *model.Output) (Output, error) {
	out := Output{Name: o.GetName(), Type: o.GetType()}
	for _, word := range o.GetSlices() {
		found, err := resolve(spec, word)
		if err != nil {
			return out, err
		}
		if out.Slices = append(out.Slices, found...); len(out.Slices) > MaxSlices {
			return out, fmt.Errorf("it has more than %d slices: name fewer", MaxSlices)
		}
	}
	if len(out.Slices) == 0 {
		return out, fmt.Errorf("it has no slices: name features, or \"*\" for all")
	}
	return out, out.shape(spec)
}

// shape finds what each sample has of the tensors.
func (o *Output) shape(spec *model.ModelSpec) error {
	first, sum := o.Slices[0], 0
	length := sequence(spec, first.Feature)
	for _, s := range o.Slices {
		if n := sequence(spec, s.Feature); n != length && o.Type != model.Output_NONE {
			return fmt.Errorf("it puts feature %q beside %q, of which one is a sequence of %d and the other of %d: put FIRSTN features of one max_sequence_length together, and no others", s.Feature, first.Feature, n, length)
		}
		if width := s.To - s.From; o.Type != model.Output_CONCAT && o.Type != model.Output_NONE && width != first.To-first.From {
			return fmt.Errorf("%v needs slices of one width: %q has %d, %q has %d", o.Type, first.Feature, first.To-first.From, s.Feature, width)
		}
		sum += s.To - s.From
	}
	var leading []int
	if length > 0 {
		leading = []int{length}
	}
	switch o.Type {
	case model.Output_CONCAT:
		o.Shapes = [][]int{append(leading, sum)}
	case model.Output_STACK:
		o.Shapes = [][]int{append(append([]int{len(o.Slices)}, leading...), first.To-first.From)}
	case model.Output_ADDN:
		if length > 0 {
			return fmt.Errorf("ADDN cannot add sequences: pool the features with SUM or MEAN")
		}
		o.Shapes = [][]int{{sum / len(o.Slices)}}
	case model.Output_NONE:
		for _, s := range o.Slices {
			shape := []int{s.To - s.From}
			if n := sequence(spec, s.Feature); n > 0 {
				shape = []int{n, s.To - s.From}
			}
			o.Shapes = append(o.Shapes, shape)
		}
	default:
		return fmt.Errorf("it has the unknown type %d: use CONCAT, STACK, ADDN or NONE", o.Type)
	}
	total := 0
	for _, shape := range o.Shapes {
		n := 1
		for _, d := range shape {
			n *= d // at most MaxSlices, MaxSequence and MaxDim
		}
		total += n
	}
	if total > MaxUnits {
		return fmt.Errorf("it has %d numbers a sample: %d are allowed", total, MaxUnits)
	}
	return nil
}

// sequence is how many rows a feature keeps apart, 0 where it adds them up.
func sequence(spec *model.ModelSpec, feature string) int {
	for _, f := range spec.GetFeatures() {
		if f.GetName() == feature && f.GetPooling() == model.Feature_FIRSTN {
			return int(f.GetMaxSequenceLength())
		}
	}
	return 0
}

// sequences are the features whose rows are kept apart, in their order.
func sequences(spec *model.ModelSpec) (names []string) {
	for _, f := range spec.GetFeatures() {
		if f.GetPooling() == model.Feature_FIRSTN {
			names = append(names, f.GetName())
		}
	}
	return names
}

// outputs are those of a spec: one of all rows where none is declared.
func outputs(spec *model.ModelSpec) []*model.Output {
	if len(spec.GetOutputs()) > 0 {
		return spec.GetOutputs()
	}
	o := &model.Output{Name: "input"}
	for _, f := range spec.GetFeatures() {
		o.Slices = append(o.Slices, f.GetName())
	}
	return []*model.Output{o}
}
