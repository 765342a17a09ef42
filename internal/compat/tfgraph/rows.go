package tfgraph

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// looked is what a feature's ids lead to.
type looked struct {
	rows    tensor // [n dim], of a sequence [n length dim]
	lengths tensor // of a sequence, [n 1]
}

// lowered refuses features whose ids become others before their rows are read, which the graph does not do yet: its
// scores would be those of other rows.
func lowered(spec *model.ModelSpec) error {
	const mend = "a graph of TensorFlow's operations does not have that yet: export the model as servable, or train it without"
	for _, f := range spec.GetFeatures() {
		switch {
		case modelspec.VocabularyOf(f).Bounded():
			return fmt.Errorf("feature %q has a vocabulary: %s", f.GetName(), mend)
		case f.GetMissing() == model.Feature_DEFAULT:
			return fmt.Errorf("feature %q has default_ids: %s", f.GetName(), mend)
		}
	}
	return nil
}

// pad marks places of a feature's ids, [n k], that hold none.
const pad = -1

// feature looks the rows of a feature's ids up and pools them as it declares. Ids without a row are rows of zeros, as
// everywhere.
func (b *builder) feature(f *model.Feature, ids tensor) looked {
	length := int(f.GetMaxSequenceLength())
	sequence := f.GetPooling() == model.Feature_FIRSTN
	if sequence {
		padding := b.fill(int64s, b.n, b.long(pad), length)
		ids = b.cut(int64s, b.concat(int64s, 1, ids, padding), 2, 1, 0, length)
	}
	there := b.add("GreaterEqual", "GreaterEqual", attrs{"T": of(int64s)}, ids, b.long(0))
	fids := ids
	if f.GetIds() != model.Feature_FID {
		fids = b.add("BitwiseOr", "BitwiseOr", attrs{"T": of(int64s)}, ids, b.long(modelspec.FID(f.GetSlot(), 0)))
	}
	fids = b.add("SelectV2", "SelectV2", attrs{"T": of(int64s)}, there, fids, b.long(pad))
	t := b.tables[f.GetTable()]
	places := b.add("LookupTableFindV2", "LookupTableFindV2", attrs{"Tin": of(int64s), "Tout": of(int64s)}, t.index, fids, b.long(t.count))
	rows := b.add("ResourceGather", "ResourceGather", attrs{"dtype": of(float32s), "Tindices": of(int64s), "batch_dims": number(0), "validate_indices": truth(true)}, t.rows, places)
	counted := b.along("Sum", b.cast(there, booleans, float32s), true, 1)
	switch {
	case sequence:
		return looked{rows, counted}
	case f.GetPooling() == model.Feature_MEAN:
		return looked{rows: b.over(b.along("Sum", rows, false, 1), b.larger(counted, b.float(1)))}
	}
	return looked{rows: b.along("Sum", rows, false, 1)}
}

// outputs lays features' rows out as the model's tensors.
func (b *builder) outputs(m *modelspec.Model, features map[string]looked) (all []tensor) {
	for _, o := range m.Outputs {
		var slices []tensor
		rank := 2 // of rows, and 3 of sequences
		for _, s := range o.Slices {
			f := features[s.Feature]
			if f.lengths != "" {
				rank = 3
			} else {
				rank = 2
			}
			slices = append(slices, b.cut(float32s, f.rows, rank, rank-1, s.From, s.To))
		}
		switch o.Type {
		case model.Output_CONCAT:
			all = append(all, b.concat(float32s, rank-1, slices...))
		case model.Output_STACK:
			all = append(all, b.stack(1, slices...))
		case model.Output_ADDN:
			all = append(all, b.add("AddN", "AddN", attrs{"T": of(float32s), "N": number(len(slices))}, slices...))
		default:
			all = append(all, slices...)
		}
	}
	return all
}
