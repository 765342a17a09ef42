package tfgraph

import (
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// looked is what a feature's ids lead to.
type looked struct {
	rows    tensor // [n dim], of a sequence [n length dim]
	lengths tensor // of a sequence, [n 1]
}

// pad marks places of a feature's ids, [n k], that hold none.
const pad = -1

// feature looks the rows of a feature's ids up and pools them as it declares. Ids without a row are rows of zeros, as
// everywhere.
func (b *builder) feature(f *model.Feature, ids tensor) looked {
	length := int(f.GetMaxSequenceLength())
	sequence := f.GetPooling() == model.Feature_FIRSTN
	none := b.add("LogicalNot", "LogicalNot", nil, b.add("Any", "Any", attrs{"Tidx": of(int32s), "keep_dims": truth(true)}, b.there(ids), b.ints(1)))
	if sequence {
		padding := b.fill(int64s, b.n, b.long(pad), length)
		ids = b.cut(int64s, b.concat(int64s, 1, ids, padding), 2, 1, 0, length)
	}
	if f.GetMissing() == model.Feature_DEFAULT {
		ids = b.defaults(f, ids, none)
	}
	there := b.there(ids)
	counted := b.along("Sum", b.cast(there, booleans, float32s), true, 1)
	fids := b.fids(f, ids, there)
	t := b.tables[f.GetTable()]
	places := b.add("LookupTableFindV2", "LookupTableFindV2", attrs{"Tin": of(int64s), "Tout": of(int64s)}, t.index, fids, b.long(t.count))
	rows := b.add("ResourceGather", "ResourceGather", attrs{"dtype": of(float32s), "Tindices": of(int64s), "batch_dims": number(0), "validate_indices": truth(true)}, t.rows, places)
	switch {
	case sequence:
		return looked{rows, counted}
	case f.GetPooling() == model.Feature_MEAN:
		return looked{rows: b.over(b.along("Sum", rows, false, 1), b.larger(counted, b.float(1)))}
	}
	return looked{rows: b.along("Sum", rows, false, 1)}
}

// there is which places hold an id.
func (b *builder) there(ids tensor) tensor {
	return b.add("GreaterEqual", "GreaterEqual", attrs{"T": of(int64s)}, ids, b.long(0))
}

// whole makes a number within a feature's slot what the feature's ids are.
func whole(f *model.Feature, id int64) int64 {
	if f.GetIds() == model.Feature_FID {
		return modelspec.FID(f.GetSlot(), id)
	}
	return id
}

// defaults gives the samples that have none of a feature's ids its default_ids: in a sequence from its first place on,
// and else behind the places of the others.
func (b *builder) defaults(f *model.Feature, ids, none tensor) tensor {
	var given []int64
	for _, id := range f.GetDefaultIds() {
		given = append(given, whole(f, int64(id)))
	}
	choose := func(otherwise tensor) tensor {
		return b.add("SelectV2", "SelectV2", attrs{"T": of(int64s)}, none, b.longs(given), otherwise)
	}
	if f.GetPooling() != model.Feature_FIRSTN {
		return b.concat(int64s, 1, ids, choose(b.long(pad)))
	}
	for len(given) < int(f.GetMaxSequenceLength()) {
		given = append(given, pad)
	}
	given = given[:f.GetMaxSequenceLength()]
	return choose(ids)
}

// fids are the feature ids of the rows that ids read where they are there, and pad elsewhere: what modelspec.Vocabulary
// makes of them.
func (b *builder) fids(f *model.Feature, ids, there tensor) tensor {
	long := func(op string, x tensor, y int64) tensor {
		return b.add(op, op, attrs{"T": of(int64s)}, x, b.long(y))
	}
	size, divisor := int64(f.GetVocabulary().GetSize()), int64(f.GetVocabulary().GetDivisor())
	rows := []tensor{ids}
	if size > 0 {
		if f.GetIds() == model.Feature_FID {
			ids = long("BitwiseAnd", ids, modelspec.MaxID)
		}
		rows[0] = long("FloorMod", ids, size)
	}
	if divisor > 0 {
		rows = []tensor{long("FloorMod", rows[0], divisor), long("AddV2", long("FloorDiv", rows[0], divisor), divisor)}
	}
	for i := range rows {
		rows[i] = long("BitwiseOr", rows[i], modelspec.FID(f.GetSlot(), 0)) // which a whole id has already
		rows[i] = b.add("SelectV2", "SelectV2", attrs{"T": of(int64s)}, there, rows[i], b.long(pad))
	}
	return b.concat(int64s, 1, rows...)
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
