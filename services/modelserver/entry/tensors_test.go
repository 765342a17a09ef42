package entry

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

func TestBatches(t *testing.T) {
	m := newEntry(t)
	two, names := tfserving.NewInt64([]int64{1, 2}), []string{m.features[0].name, m.features[1].name}
	in := func(a, b *tfserving.TensorProto) map[string]*tfserving.TensorProto {
		return map[string]*tfserving.TensorProto{names[0]: a, names[1]: b}
	}
	for name, tc := range map[string]struct {
		inputs map[string]*tfserving.TensorProto
		limit  int
		says   string
	}{
		"two rows":           {in(two, two), 2, ""},
		"a column":           {in(two, tfserving.NewInt64([]int64{1, 2}, 2, 1)), 2, ""},
		"over the limit":     {in(two, two), 1, "input"},
		"another count":      {in(two, tfserving.NewInt64([]int64{1, 2, 3})), 3, "give each the same number"},
		"one for all":        {in(two, tfserving.NewInt64([]int64{1})), 2, ""},
		"one for all, first": {in(tfserving.NewInt64([]int64{1}), two), 2, ""},
		"none for two":       {in(two, tfserving.NewInt64(nil)), 2, "give each the same number"},
		"two ids a row":      {in(tfserving.NewInt64([]int64{1, 2, 3, 4}, 2, 2), two), 4, ""},
		"three dims":         {in(tfserving.NewInt64([]int64{1, 2}, 2, 1, 1), two), 2, "3 dimensions"},
		"no rows":            {in(tfserving.NewInt64(nil), tfserving.NewInt64(nil)), 2, "the batch is empty"},
		"the largest id":     {in(tfserving.NewInt64([]int64{modelspec.MaxID, 0}), two), 2, ""},
		"beyond it":          {in(tfserving.NewInt64([]int64{modelspec.MaxID + 1, 0}), two), 2, "is outside"},
		"below 0":            {in(tfserving.NewInt64([]int64{0, -1}), two), 2, "row 1: id -1 is outside"},
		"another's input":    {map[string]*tfserving.TensorProto{names[0]: two, "x": two}, 2, "is missing"},
		"one input":          {map[string]*tfserving.TensorProto{names[0]: two}, 2, "input size does not match"},
	} {
		sc := m.scratches.Get().(*scratch)
		err := sc.load(m, Input{Tensors: tc.inputs}, tc.limit)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) || err == nil && (sc.batch.Len() != 2 || sc.batch.Seal() != nil) {
			t.Errorf("%s: %d rows, %v; want %q", name, sc.batch.Len(), err, tc.says)
		}
	}
}
