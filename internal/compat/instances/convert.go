package instances

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/internal/wire/matrixpb/idlpb"
	"github.com/monolith-go/monolith/kernels/layout"
)

// The names under which a batch has what an instance has fields for.
const (
	labelName = "__LABEL__"
	lineName  = "__LINE_ID__"
)

// maxSamples bounds the samples of a batch.
const maxSamples = 1 << 16

// Split makes an instance of each sample of a batch: labels and LineIds go into their fields, ids
// become those of version 2, and of each feature the first kind of value that it has is kept.
func Split(b *matrixpb.ExampleBatch) ([]*idlpb.Instance, error) {
	n := int(b.GetBatchSize())
	if n < 1 || n > maxSamples {
		return nil, fmt.Errorf("the batch says that it has %d samples; want 1 to %d", n, maxSamples)
	}
	all := make([]*idlpb.Instance, n)
	for i := range all {
		all[i] = &idlpb.Instance{}
	}
	for _, list := range b.GetNamedFeatureList() {
		shared := list.GetType() == matrixpb.FeatureListType_SHARED
		if got := len(list.GetFeature()); got != n && (!shared || got == 0) {
			return nil, fmt.Errorf("feature %q has %d elements for %d samples", list.GetName(), got, n)
		}
		for i, in := range all {
			f := list.GetFeature()[0]
			if !shared {
				f = list.GetFeature()[i]
			}
			if err := add(in, list.GetName(), f); err != nil {
				return nil, fmt.Errorf("feature %q, sample %d: %w", list.GetName(), i, err)
			}
		}
	}
	return all, nil
}

// add gives an instance one more feature.
func add(in *idlpb.Instance, name string, f *matrixpb.Feature) error {
	switch name {
	case labelName:
		in.Label = append(in.Label, f.GetFloatList().GetValue()...)
		return nil
	case lineName:
		in.LineId = &idlpb.LineId{}
		if v := f.GetBytesList().GetValue(); len(v) > 0 {
			return proto.Unmarshal(v[0], in.LineId)
		}
		return nil
	}
	to := &idlpb.Feature{Name: proto.String(name)}
	switch kind := f.GetType().(type) {
	case *matrixpb.Feature_FidV1List:
		for _, id := range kind.FidV1List.GetValue() {
			to.Fid = append(to.Fid, layout.V2FromV1(id))
		}
	case *matrixpb.Feature_FidV2List:
		to.Fid = kind.FidV2List.GetValue()
	case *matrixpb.Feature_FloatList:
		to.FloatValue = kind.FloatList.GetValue()
	case *matrixpb.Feature_DoubleList:
		for _, v := range kind.DoubleList.GetValue() {
			to.FloatValue = append(to.FloatValue, float32(v))
		}
	case *matrixpb.Feature_Int64List:
		to.Int64Value = kind.Int64List.GetValue()
	case *matrixpb.Feature_BytesList:
		to.BytesValue = kind.BytesList.GetValue()
	default:
		return nil // of other kinds an instance has none
	}
	in.Feature = append(in.Feature, to)
	return nil
}
