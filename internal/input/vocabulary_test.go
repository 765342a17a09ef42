package input

import (
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// Of a feature with a vocabulary any whole number is an id.
func TestNumbersOfAVocabulary(t *testing.T) {
	d := New(&model.ModelSpec{Features: []*model.Feature{{Name: "u", Field: "u", Slot: 1, Vocabulary: &model.Vocabulary{Size: 1000}}}}, Options{})
	for given, want := range map[string]int64{"7": 7, "-1": 0, "-9223372036854775808": 0, "9223372036854775807": 807, "281474976710656": 656} {
		s, err := d.Decode(fmt.Appendf(nil, `{"u":%s}`, given))
		if err != nil || s.IDs[0][0] != modelspec.FID(1, want) {
			t.Errorf("%s: %#x, %v", given, s.IDs, err)
		}
	}
	if s, err := d.Decode([]byte(`{"u":1.5}`)); err == nil {
		t.Errorf("1.5 is %#x", s.IDs)
	}
}
