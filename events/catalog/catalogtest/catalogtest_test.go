package catalogtest_test

import (
	"testing"

	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/catalog/catalogtest"
)

// There are extreme events of every kind of fact, and all of them can be appended.
func TestExtremeEventsOfEveryKind(t *testing.T) {
	of := map[string]int{}
	for _, c := range catalogtest.Extreme(t) {
		if _, err := catalog.Encode(c.Subject, c.Event); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		of[string(c.Event.ProtoReflect().Descriptor().FullName())+" "+catalog.Type(c.Event)]++
	}
	for _, g := range catalogtest.Golden(t) {
		if kind := string(g.Event.ProtoReflect().Descriptor().FullName()) + " " + catalog.Type(g.Event); of[kind] < 1 {
			t.Errorf("%d extreme events of %s", of[kind], kind)
		}
	}
}
