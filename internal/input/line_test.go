package input

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/internal/wire/matrixpb/idlpb"
)

// Lines are those of the samples that a batch has: none of what was dropped or refused, and nothing of the
// batch before.
func TestLinesOfSamples(t *testing.T) {
	spec := modelspec.MovieRanking()
	spec.SampleRules = []*model.SampleRule{{Name: "odd", Where: []*model.Condition{{Field: "drop"}}, Action: &model.SampleRule_Drop_{Drop: &model.SampleRule_Drop{}}}}
	e, err := runtime.New(spec, 1, 16)
	if err != nil {
		t.Fatal(err)
	}
	b, d := e.NewBatch(), New(spec, Options{Lines: true})
	user, movie, label := spec.Features[0].GetField(), spec.Features[1].GetField(), spec.GetLabel().GetField()
	for range 2 {
		b.Reset()
		for _, more := range []string{`"uid":7,"req_time":1700000000,"sample_rate":0.25`, `"drop":1,"uid":8`, `"uid":"x","req_time":[1,2],"sample_rate":null`, `"uid":-3,"sample_rate":1e300`} {
			if err := d.Into(b, fmt.Appendf(nil, `{%q:1,%q:2,%q:3,%s}`, user, movie, label, more), Position{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Into(b, []byte(`{"uid":9}`), Position{}); err == nil {
			t.Fatal("a record without ids is taken")
		}
		want := []Line{{true, 7, 1700000000, .25}, {Rate: 1}, {Known: true, User: -3, Rate: 1}}
		if got := d.Lines(); !slices.Equal(got, want) || b.Len() != len(want) {
			t.Errorf("lines %v of %d samples, want %v", got, b.Len(), want)
		}
	}
}

// In Monolith's formats a Line stands in the line id.
func TestLinesOfLineIDs(t *testing.T) {
	spec := modelspec.MovieRanking()
	e, err := runtime.New(spec, 1, 16)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range spec.Features {
		f.Ids, f.Field = model.Feature_FID, fmt.Sprint("f_", i)
	}
	spec.Label.Field = LabelName
	ids := func(i int) *matrixpb.Feature {
		return &matrixpb.Feature{Type: &matrixpb.Feature_FidV2List{FidV2List: &matrixpb.FidList{Value: []uint64{uint64(modelspec.FID(spec.Features[i].GetSlot(), 5))}}}}
	}
	record, err := proto.Marshal(&matrixpb.Example{
		NamedFeature: []*matrixpb.NamedFeature{{Name: "f_0", Feature: ids(0)}, {Name: "f_1", Feature: ids(1)}},
		Label:        []float32{4}, LineId: &idlpb.LineId{Uid: proto.Uint64(12), ReqTime: proto.Int64(34), SampleRate: proto.Float32(.5)},
	})
	if err != nil {
		t.Fatal(err)
	}
	b, d := e.NewBatch(), New(spec, Options{Lines: true, Format: MonolithExample})
	if err := d.Into(b, record, Position{}); err != nil {
		t.Fatal(err)
	}
	if got := d.Lines(); !slices.Equal(got, []Line{{true, 12, 34, .5}}) {
		t.Errorf("lines %v", got)
	}
}
