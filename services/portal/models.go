package portal

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/projections/models"
)

// listed is one element of the answer to portal.models.
type listed struct {
	Name     string                   `json:"name"`
	Declared bool                     `json:"declared"`
	Loaded   bool                     `json:"loaded"`
	Load     events.JSON[*model.Load] `json:"load"` // null: not loaded
	LoadSeq  uint64                   `json:"load_seq"`
	Seq      uint64                   `json:"seq"`
}

// list is every model that was ever declared or loaded, by name.
func list(c models.State) []listed {
	out := []listed{}
	for _, name := range slices.Sorted(maps.Keys(c.Models)) {
		m := c.Models[name]
		if m.Spec.V == nil && m.LoadSeq == 0 {
			continue // refused, and nothing else
		}
		out = append(out, listed{Name: name, Declared: m.Spec.V != nil, Loaded: m.Load.V != nil, Load: m.Load, LoadSeq: m.LoadSeq, Seq: m.Seq})
	}
	return out
}

func sameSpec(m models.Model, spec *model.ModelSpec) bool {
	return m.Spec.V != nil && proto.Equal(m.Spec.V, spec)
}
