// Package parsed turns the original's example messages (internal/wire/matrixpb) into the
// plain values that kernels/layout computes on. Its own decoders, which parse bytes, are held
// against it in tests.
package parsed

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/internal/wire/matrixpb/idlpb"
	"github.com/monolith-go/monolith/kernels/layout"
)

// LayoutConfig is the configuration of a layout plan for that many shards (ps_num). What
// the original fills in by itself (feature_idx, slice_idx, and a slice's pooling_type and
// max_sequence_length) is ignored. What does not fit together is for [layout.Compile] to say.
func LayoutConfig(configs *matrixpb.FeatureConfigs, shards int) (layout.Config, error) {
	c := layout.Config{Shards: shards}
	for name, f := range configs.GetFeatureConfigs() {
		pooling := layout.Pooling(f.GetPoolingType())
		if matrixpb.PoolingType(pooling) != f.GetPoolingType() {
			return c, fmt.Errorf("parsed: feature %q: pooling_type %d is unknown: SUM is 0, MEAN 1, FIRSTN 3", name, f.GetPoolingType())
		}
		c.Features = append(c.Features, layout.Feature{
			Name: name, Table: f.GetTable(), Pooling: pooling,
			SliceDims: ints(f.GetSliceDims()), MaxSequenceLength: int(f.GetMaxSequenceLength()),
		})
	}
	for name, o := range configs.GetOutConfigs() {
		typ := layout.OutType(o.GetOutType())
		if matrixpb.OutType(typ) != o.GetOutType() {
			return c, fmt.Errorf("parsed: layout %q: out_type %d is unknown: CONCAT is 0, STACK 1, ADDN 2, NONE 3", name, o.GetOutType())
		}
		out := layout.Output{Name: name, Type: typ}
		for _, s := range o.GetSliceConfigs() {
			out.Slices = append(out.Slices, layout.Slice{Feature: s.GetFeatureName(), Start: int(s.GetStart()), End: int(s.GetEnd())})
		}
		for _, s := range o.GetShape() {
			out.Shapes = append(out.Shapes, ints(s.GetDims()))
		}
		c.Outputs = append(c.Outputs, out)
	}
	return c, nil
}

func ints(dims []int32) []int {
	out := make([]int, len(dims))
	for i, d := range dims {
		out[i] = int(d)
	}
	return out
}

// FillExamples is [layout.Batch.ReadExamples] for examples that are parsed already.
func FillExamples(b *layout.Batch, examples []*matrixpb.Example) error {
	if err := b.Reset(len(examples)); err != nil {
		return err
	}
	for i, e := range examples {
		for _, f := range e.GetNamedFeature() {
			if f.GetSortedId() > 0 {
				return fmt.Errorf("parsed: example %d: %w", i, layout.SortedIDError(f.GetName(), f.GetSortedId()))
			}
			if at, ok := b.Plan().Feature(f.GetName()); ok {
				if err := fillRow(b, at, i, f.GetFeature()); err != nil {
					return fmt.Errorf("parsed: example %d: feature %q: %w", i, f.GetName(), err)
				}
			}
		}
	}
	return nil
}

// FillExampleBatch is [layout.Batch.ReadExampleBatch] for a batch that is parsed already.
func FillExampleBatch(b *layout.Batch, batch *matrixpb.ExampleBatch) error {
	if err := b.ResetColumns(int(batch.GetBatchSize())); err != nil {
		return err
	}
	for _, list := range batch.GetNamedFeatureList() {
		at, ok := b.Plan().Feature(list.GetName())
		if !ok {
			continue
		}
		rows := list.GetFeature()
		shared := list.GetType() == matrixpb.FeatureListType_SHARED
		if err := b.Column(at, len(rows), shared); err != nil {
			return err
		}
		if shared {
			rows = rows[:min(len(rows), 1)]
		}
		for i, f := range rows {
			if err := fillRow(b, at, i, f); err != nil {
				return fmt.Errorf("parsed: example batch: feature %q, element %d: %w", list.GetName(), i, err)
			}
		}
	}
	return nil
}

func fillRow(b *layout.Batch, feature, row int, f *matrixpb.Feature) error {
	switch kind := f.GetType().(type) {
	case nil:
		return nil
	case *matrixpb.Feature_FidV1List:
		return b.Row(feature, row, true, kind.FidV1List.GetValue())
	case *matrixpb.Feature_FidV2List:
		return b.Row(feature, row, false, kind.FidV2List.GetValue())
	}
	set := f.ProtoReflect().WhichOneof(f.ProtoReflect().Descriptor().Oneofs().ByName("type"))
	return layout.KindError(int(set.Number()))
}

// FillInstances is [layout.Batch.ReadInstances] for instances that are parsed already.
func FillInstances(b *layout.Batch, instances []*idlpb.Instance) error {
	if err := b.Reset(len(instances)); err != nil {
		return err
	}
	for i, in := range instances {
		for _, f := range in.GetFeature() {
			at, ok := b.Plan().Feature(f.GetName())
			if !ok {
				continue
			}
			fids := f.GetFid()
			if len(f.GetFidList()) > 0 {
				fids = slices.Clone(fids)
				for _, list := range f.GetFidList() {
					fids = append(fids, list.GetValue()...)
				}
			}
			if err := b.Row(at, i, false, fids); err != nil {
				return fmt.Errorf("parsed: instance %d: %w", i, err)
			}
		}
		if err := b.Slotted(i, in.GetFid()); err != nil {
			return fmt.Errorf("parsed: instance %d: %w", i, err)
		}
	}
	return nil
}
