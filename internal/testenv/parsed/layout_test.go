package parsed_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/monolith-go/monolith/internal/testenv/parsed"
	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/internal/wire/matrixpb/idlpb"
	"github.com/monolith-go/monolith/kernels/layout"
)

func ids(v ...uint64) *matrixpb.FidList { return &matrixpb.FidList{Value: v} }

func v1(v ...uint64) *matrixpb.Feature {
	return &matrixpb.Feature{Type: &matrixpb.Feature_FidV1List{FidV1List: ids(v...)}}
}

func v2(v ...uint64) *matrixpb.Feature {
	return &matrixpb.Feature{Type: &matrixpb.Feature_FidV2List{FidV2List: ids(v...)}}
}

var configs = &matrixpb.FeatureConfigs{
	FeatureConfigs: map[string]*matrixpb.FeatureConfig{
		"fc_slot_3": {Table: "u", SliceDims: []int32{1, 4}},
		"item":      {Table: "i", SliceDims: []int32{1, 4}, PoolingType: matrixpb.PoolingType_FIRSTN, MaxSequenceLength: 2},
	},
	OutConfigs: map[string]*matrixpb.OutConfig{
		"seq": {
			OutType:      matrixpb.OutType_NONE,
			SliceConfigs: []*matrixpb.SliceConfig{{FeatureName: "item", Start: 1, End: 5, PoolingType: matrixpb.PoolingType_MEAN, FeatureIdx: 99}},
			Shape:        []*matrixpb.TensorShape{{Dims: []int32{-1, 2, 4}}},
		},
	},
}

func plan(t testing.TB) *layout.Plan {
	t.Helper()
	cfg, err := parsed.LayoutConfig(configs, 3)
	if err != nil {
		t.Fatal(err)
	}
	p, err := layout.Compile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLayoutConfig(t *testing.T) {
	p := plan(t)
	if !slices.Equal(p.Features(), []string{"fc_slot_3", "item"}) || !slices.Equal(p.Tables(), []string{"i", "u"}) {
		t.Errorf("features %v, tables %v", p.Features(), p.Tables())
	}
	outputs, shapes := p.Tensors(7)
	if diff := cmp.Diff([][]int{{7, 2, 4}}, shapes); diff != "" || !slices.Equal(outputs, []string{"seq"}) {
		t.Errorf("outputs %v, shapes %v", outputs, shapes)
	}
	for want, spoil := range map[string]func(c *matrixpb.FeatureConfigs){
		"pooling_type 256 is unknown":   func(c *matrixpb.FeatureConfigs) { c.FeatureConfigs["item"].PoolingType = 256 },
		"pooling_type -1 is unknown":    func(c *matrixpb.FeatureConfigs) { c.FeatureConfigs["item"].PoolingType = -1 },
		"Pooling(2) is no pooling":      func(c *matrixpb.FeatureConfigs) { c.FeatureConfigs["item"].PoolingType = 2 },
		"out_type 257 is unknown":       func(c *matrixpb.FeatureConfigs) { c.OutConfigs["seq"].OutType = 257 },
		"OutType(4) is no out_type":     func(c *matrixpb.FeatureConfigs) { c.OutConfigs["seq"].OutType = 4 },
		"max_sequence_length":           func(c *matrixpb.FeatureConfigs) { c.FeatureConfigs["item"].MaxSequenceLength = -3 },
		`feature "x" is not configured`: func(c *matrixpb.FeatureConfigs) { c.OutConfigs["seq"].SliceConfigs[0].FeatureName = "x" },
	} {
		c := proto.Clone(configs).(*matrixpb.FeatureConfigs)
		spoil(c)
		cfg, err := parsed.LayoutConfig(c, 3)
		if err == nil {
			_, err = layout.Compile(cfg)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// The numbers that other writers of these messages use.
func TestKnownBytes(t *testing.T) {
	for _, tc := range []struct {
		m    proto.Message
		want string
	}{
		{v1(1), "0a0a0a080100000000000000"},
		{v2(), "1200"},
		{&matrixpb.Feature{Type: &matrixpb.Feature_FidV1Lists{}}, "820100"},
		{&matrixpb.NamedFeature{Id: 1, Name: "n", SortedId: 2}, "0a016e" + "1801" + "3002"},
		{&matrixpb.NamedFeatureList{Id: 1, Name: "n", Type: matrixpb.FeatureListType_SHARED}, "0a016e" + "1801" + "2001"},
		{&matrixpb.ExampleBatch{BatchSize: 3, DataSourceKey: 1}, "1803" + "a00601"},
		{&matrixpb.Example{Label: []float32{1}, InstanceWeight: 1, DataSourceKey: 1, LineId: &idlpb.LineId{Uid: proto.Uint64(1)}}, "a2060911" + "0100000000000000" + "aa06040000803f" + "b5060000803f" + "b80601"},
		{&matrixpb.SliceConfig{FeatureName: "f", Start: 1, End: 2, PoolingType: matrixpb.PoolingType_FIRSTN, MaxSequenceLength: 4}, "0a0166" + "1001" + "1802" + "5003" + "5804"},
		{&matrixpb.OutConfig{OutType: matrixpb.OutType_NONE, Shape: []*matrixpb.TensorShape{{Dims: []int32{-1}}}}, "1003" + "1a0c0a0a" + "ffffffffffffffffff01"},
		{&matrixpb.FeatureConfig{Table: "t", PoolingType: matrixpb.PoolingType_MEAN, SliceDims: []int32{1, 4}, MaxSequenceLength: 2}, "0a0174" + "1001" + "1a020104" + "2002"},
		{&idlpb.Instance{Fid: []uint64{1}, Feature: []*idlpb.Feature{{Name: proto.String("n"), FidList: []*idlpb.Fixed64List{{}}}}, DataSourceKey: proto.Uint32(1)}, "0a080100000000000000" + "4a050a016e3200" + "a00601"},
		{&idlpb.LineId{SampleRate: proto.Float32(1), DataSourceName: proto.String("d"), SpecialStrategies: []int32{1, 2}}, "dd010000803f" + "b80201" + "b80202" + "da0e0164"},
	} {
		got, err := proto.MarshalOptions{Deterministic: true}.Marshal(tc.m)
		if err != nil {
			t.Fatal(err)
		}
		want, err := hex.DecodeString(tc.want)
		if err != nil {
			t.Fatal(err)
		}
		back := tc.m.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(want, back); err != nil || cmp.Diff(tc.m, back, protocmp.Transform()) != "" {
			t.Errorf("%T: %x reads as %v, %v", tc.m, want, back, err)
		}
		// Writers may put fields in any order; ours go by number, oneofs last.
		if sorted(got) != sorted(want) {
			t.Errorf("%T is %x, want %x", tc.m, got, want)
		}
	}
	if got := (&idlpb.LineId{}).GetSampleRate(); got != 1 {
		t.Errorf("sample_rate defaults to %v, want 1", got)
	}
}

func sorted(b []byte) string {
	b = bytes.Clone(b)
	slices.Sort(b)
	return string(b)
}

// rows is everything a batch says.
func rows(b *layout.Batch) (out [][][]uint64) {
	for f := range b.Plan().Features() {
		n, _ := b.Rows(f)
		var ids [][]uint64
		for i := range n {
			ids = append(ids, slices.Clone(b.FIDs(f, i)))
		}
		out = append(out, ids)
	}
	return out
}

// Reading bytes and filling from parsed messages are two programs for one meaning. Where
// protobuf's own library accepts bytes, both must say the same.
func FuzzReadIsParse(f *testing.F) {
	batch := &matrixpb.ExampleBatch{BatchSize: 2, NamedFeatureList: []*matrixpb.NamedFeatureList{
		{Name: "item", Feature: []*matrixpb.Feature{v2(1, 2), {}}},
		{Name: "fc_slot_3", Type: matrixpb.FeatureListType_SHARED, Feature: []*matrixpb.Feature{v1(3<<54 | 1)}},
		{Name: "other", Feature: []*matrixpb.Feature{{Type: &matrixpb.Feature_FloatValue{FloatValue: 1}}}},
	}}
	example := &matrixpb.Example{NamedFeature: []*matrixpb.NamedFeature{
		{Name: "item", Feature: v2(1, 2, 3)}, {Name: "fc_slot_3", Feature: v1(3 << 54)},
		{Name: "other", Feature: &matrixpb.Feature{Type: &matrixpb.Feature_BytesValue{BytesValue: []byte("x")}}},
	}, Label: []float32{1}, LineId: &idlpb.LineId{Uid: proto.Uint64(3)}}
	bad := &matrixpb.Example{NamedFeature: []*matrixpb.NamedFeature{{Name: "item", Feature: &matrixpb.Feature{Type: &matrixpb.Feature_Int64Value{Int64Value: 1}}}}}
	sortedID := &matrixpb.Example{NamedFeature: []*matrixpb.NamedFeature{{Name: "item", SortedId: 1}}}
	instance := &idlpb.Instance{Fid: []uint64{3<<54 | 7, 5, 3<<54 | 8}, Label: []float32{1}, Feature: []*idlpb.Feature{
		{Name: proto.String("item"), Fid: []uint64{1}, FidList: []*idlpb.Fixed64List{{Value: []uint64{2, 3}}, {Value: []uint64{4}}}},
	}}
	short := proto.Clone(batch).(*matrixpb.ExampleBatch)
	short.BatchSize = 3
	for variant, m := range map[uint8]proto.Message{0: example, 1: batch, 2: instance, 3: bad, 4: short, 6: sortedID} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, variant)
		f.Add(append(slices.Clone(data), data...), variant)
		f.Add(data[:len(data)-1], variant)
	}
	p := plan(f)
	f.Fuzz(func(t *testing.T, data []byte, variant uint8) {
		read, fill := p.NewBatch(), p.NewBatch()
		var readErr, fillErr error
		parse := func(m proto.Message) {
			if err := proto.Unmarshal(data, m); err != nil {
				fillErr = errParse
			}
		}
		switch variant % 3 {
		case 0:
			m := &matrixpb.Example{}
			if parse(m); fillErr == nil {
				fillErr = parsed.FillExamples(fill, []*matrixpb.Example{m, nil})
			}
			readErr = read.ReadExamples([][]byte{data, nil})
		case 1:
			m := &matrixpb.ExampleBatch{}
			if parse(m); fillErr == nil {
				fillErr = parsed.FillExampleBatch(fill, m)
			}
			readErr = read.ReadExampleBatch(data)
		case 2:
			m := &idlpb.Instance{}
			if parse(m); fillErr == nil {
				fillErr = parsed.FillInstances(fill, []*idlpb.Instance{nil, m})
			}
			readErr = read.ReadInstances([][]byte{nil, data})
		}
		switch {
		case errors.Is(fillErr, errParse):
			return // what nobody asked for is passed over unread, and may be malformed
		case readErr != nil && strings.Contains(readErr.Error(), "too deeply"):
			return
		case (readErr == nil) != (fillErr == nil):
			t.Fatalf("bytes: %v\nparsed: %v", readErr, fillErr)
		case readErr != nil:
			return
		}
		if diff := cmp.Diff(rows(fill), rows(read)); diff != "" {
			t.Fatalf("parsed (-) and bytes (+):\n%s", diff)
		}
	})
}

var errParse = errors.New("protobuf does not read this")
