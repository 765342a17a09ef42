package entry

import (
	"maps"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

// Ids that are hashes are called what the caller gave: texts, or numbers as their digits.
func TestTextsOfHashes(t *testing.T) {
	m := &Model{spec: &model.ModelSpec{Features: []*model.Feature{
		{Name: "country", Ids: model.Feature_HASH}, {Name: "site", Ids: model.Feature_HASH}, {Name: "user"}, {Name: "absent", Ids: model.Feature_HASH},
	}}}
	long := strings.Repeat("x", impression.MaxText-1) + "é and more"
	countries := tfserving.NewInt64(nil, 3)
	countries.Dtype, countries.StringVal = types_go_proto.DataType_DT_STRING, [][]byte{[]byte("fr"), []byte(long), {255, 'a'}}
	got := m.textsOf(Input{Tensors: map[string]*tfserving.TensorProto{"country": countries, "site": tfserving.NewInt64([]int64{12}), "user": tfserving.NewInt64([]int64{1})}})
	of := func(text string) int64 { return modelspec.HashID([]byte(text)) }
	if want := map[int64]string{of("fr"): "fr", of(long): long[:impression.MaxText-1], of("\xffa"): "a"}; !maps.Equal(got["country"], want) {
		t.Errorf("%v, want %v", got["country"], want)
	}
	if want := map[int64]string{of("12"): "12"}; !maps.Equal(got["site"], want) {
		t.Errorf("%v, want %v", got["site"], want)
	}
	if len(got) != 2 {
		t.Errorf("%v", got)
	}
}
