package warmup

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// Of a request the first rows are taken, as many as any model server takes: 4,096 unless its --max-batch
// says otherwise, and fewer ids and bytes of rows than runtime has bounds for.
const (
	maxRows = 1024
	maxIDs  = 1 << 16
)

// first are the rows within the bounds.
func first(spec *model.ModelSpec, rows []*impression.Impression) []*impression.Impression {
	rows = rows[:min(len(rows), maxRows)]
	reads := 0
	for i, row := range rows {
		for _, f := range spec.GetFeatures() {
			n := modelspec.VocabularyOf(f).Rows()
			for _, of := range f.GetCross() {
				n *= len(row.Inputs[of])
			}
			if len(f.GetCross()) == 0 {
				n *= len(row.Inputs[f.GetName()])
			}
			reads += n
		}
		if reads > maxIDs {
			return rows[:i]
		}
	}
	return rows
}

// request is the Predict that was answered by rows, which are those of one answer in their order, as a
// model of spec takes it. It is an error where that model would refuse it: a recorded request that is
// refused fails the version.
func request(spec *model.ModelSpec, rows []*impression.Impression) (*apis.PredictRequest, error) {
	if rows = first(spec, rows); len(rows) == 0 {
		return nil, fmt.Errorf("its first row reads more than %d rows of tables", maxIDs)
	}
	req := &apis.PredictRequest{ModelSpec: tfserving.Spec(spec.GetName(), 0), Inputs: map[string]*tfserving.TensorProto{}}
	for _, f := range spec.GetFeatures() {
		if len(f.GetCross()) > 0 {
			continue // it follows from others
		}
		if err := feature(req, spec, f, rows); err != nil {
			return nil, fmt.Errorf("input %q: %w", f.GetName(), err)
		}
	}
	for _, f := range spec.GetFloats() {
		if err := float(req, f, rows); err != nil {
			return nil, fmt.Errorf("input %q: %w", f.GetName(), err)
		}
	}
	if len(req.GetInputs()) == 0 {
		return nil, fmt.Errorf("it has no input that model %q takes", spec.GetName())
	}
	return req, nil
}

// feature adds the ids of a feature: [n, k] where each row has k, else values and their row splits.
func feature(req *apis.PredictRequest, spec *model.ModelSpec, f *model.Feature, rows []*impression.Impression) error {
	var ids []int64
	var texts [][]byte
	splits, regular := []int64{0}, true
	for i, row := range rows {
		given := row.Inputs[f.GetName()]
		if f.GetMissing() == model.Feature_REJECT && len(given) == 0 {
			return fmt.Errorf("row %d has no id", i)
		}
		var err error
		if f.GetIds() == model.Feature_HASH {
			texts, err = appendTexts(texts, f, row, given)
		} else {
			ids, err = appendIDs(ids, f, given)
		}
		if err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		splits = append(splits, int64(len(ids)+len(texts)))
		regular = regular && splits[i+1] == splits[1]*int64(i+1)
	}
	if len(ids)+len(texts) == 0 {
		return nil // as one that was not given
	}
	var values *tfserving.TensorProto
	shape := []int64{int64(len(ids) + len(texts))}
	if regular {
		shape = []int64{int64(len(rows)), splits[1]}
	}
	values = tfserving.NewInt64(ids, shape...)
	if f.GetIds() == model.Feature_HASH {
		values = tfserving.NewStrings(texts, shape...)
	}
	req.Inputs[f.GetName()] = values
	if !regular {
		name := f.GetName() + tfserving.SplitsSuffix
		if modelspec.Feature(spec, name) != nil || slices.ContainsFunc(spec.GetFloats(), func(f *model.Float) bool { return f.GetName() == name }) {
			return fmt.Errorf("its row splits would have the name of another input")
		}
		req.Inputs[name] = tfserving.NewInt64(splits)
	}
	return nil
}

// appendIDs appends ids, which are within the feature's slot, as the feature's inputs have them.
func appendIDs(ids []int64, f *model.Feature, given impression.IDs) ([]int64, error) {
	for _, id := range given {
		if id < 0 || id > modelspec.MaxID {
			return nil, fmt.Errorf("%d is no id", id)
		}
		if f.GetIds() == model.Feature_FID {
			id = modelspec.FID(f.GetSlot(), id)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// appendTexts appends the texts of which ids are the hashes. The rows that were read have them, but for
// those that were too long or came in a record; ids by default were not given at all.
func appendTexts(texts [][]byte, f *model.Feature, row *impression.Impression, given impression.IDs) ([][]byte, error) {
	if byDefault(f, given) {
		return texts, nil
	}
	known := map[int64][]byte{modelspec.HashID(nil): {}}
	for _, r := range row.Rows {
		if r.Feature == f.GetName() {
			known[modelspec.HashID([]byte(r.Text))] = []byte(r.Text)
		}
	}
	for _, id := range given {
		text, ok := known[id]
		if !ok {
			return nil, fmt.Errorf("the text of hash %d was not written whole", id)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// byDefault says that ids are those that a row without any gets.
func byDefault(f *model.Feature, given impression.IDs) bool {
	return len(given) > 0 && slices.EqualFunc(given, f.GetDefaultIds(), func(id int64, of uint64) bool { return id == int64(of) })
}

// float adds the numbers of a float, [n, dim]; where no row has any, they are as good as not given.
func float(req *apis.PredictRequest, f *model.Float, rows []*impression.Impression) error {
	dim := int(max(f.GetDim(), 1))
	var all []float32
	for i, row := range rows {
		values := row.Floats[f.GetName()]
		if len(values) != dim && (len(values) > 0 || f.GetMissing() == model.Feature_REJECT) {
			return fmt.Errorf("row %d has %d of %d numbers", i, len(values), dim)
		}
		all = append(all, values...)
	}
	if len(all) == 0 {
		return nil
	}
	if len(all) != dim*len(rows) {
		return fmt.Errorf("some rows have no numbers")
	}
	req.Inputs[f.GetName()] = tfserving.NewFloat(all, int64(len(rows)), int64(dim))
	return nil
}
