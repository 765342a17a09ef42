package entry

import (
	"strconv"
	"strings"

	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// textsOf are, by feature, the texts of which a request's ids are hashes, by hash: nobody knows a hash
// by sight. They are worked out for impressions alone. Records hold theirs in a format of their own, and
// are not read again: theirs are missing.
func (m *Model) textsOf(in Input) map[string]map[int64]string {
	var all map[string]map[int64]string
	for _, f := range m.spec.GetFeatures() {
		t := in.Tensors[f.GetName()]
		if t == nil || f.GetIds() != model.Feature_HASH {
			continue
		}
		of := map[int64]string{}
		if t.GetDtype() == types_go_proto.DataType_DT_STRING {
			texts, err := tfserving.Strings(nil, t, maxValues)
			if err != nil {
				continue // it was read a moment ago
			}
			for _, text := range texts {
				of[modelspec.HashID(text)] = shown(string(text))
			}
		} else {
			ids, err := tfserving.Int64s(nil, t, maxValues)
			if err != nil {
				continue
			}
			for _, id := range ids { // as in a record, a number is its digits
				digits := strconv.FormatInt(id, 10)
				of[modelspec.HashID([]byte(digits))] = digits
			}
		}
		if all == nil {
			all = map[string]map[int64]string{}
		}
		all[f.GetName()] = of
	}
	return all
}

// shown is a text as JSON can hold it, of bounded length.
func shown(text string) string {
	if len(text) > impression.MaxText {
		text = text[:impression.MaxText]
	}
	return strings.ToValidUTF8(text, "")
}
