package replicaregistry

import (
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/services/internal/role"
)

// Whatever a heartbeat holds, it is refused, or it becomes facts that the log takes and
// after which the same heartbeat changes nothing more.
func FuzzHeartbeat(f *testing.F) {
	for _, hb := range []*replica.Heartbeat{
		beat(box("a"), rep("m", "ps", 0, 0, "a", replica.State_AVAILABLE), rep("m.n", "entry", 0, 1, "", replica.State_START)),
		{Container: box("a"), Resource: memory(5), Leaving: true},
		{Container: box("a"), Resource: memory(-5)},
	} {
		body, err := events.Marshal(hb)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte(`{"container":{"id":"a","kind":"training","job":"j","serverType":"ps"},"replicas":[{"modelName":"m","serverType":"ps"},null]}`))
	f.Add([]byte(`{"container":{"id":"a","kind":"serving"},"replicas":[{"modelName":"m","serverType":"ps","stat":99}],"resource":{"cpu":"NaN"}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var hb replica.Heartbeat
		if role.Decode(payload, &hb, heartbeatExample) != nil || check(&hb) != nil {
			return
		}
		state := fleet.New()
		for round := range 2 {
			drafts, _ := decideHeartbeat("b", state, &hb)
			if round == 1 && len(drafts) > 0 {
				t.Fatalf("the same heartbeat leads to %s again: %s", tell(drafts), protojson.Format(&hb))
			}
			for i, d := range drafts {
				if _, err := catalog.Encode(d.Subject, d.Event); err != nil {
					t.Fatalf("the log refuses what was accepted: %v", err)
				}
				state = fleet.Fold(state, events.Recorded{Seq: uint64(i + 1), Subject: d.Subject, Event: d.Event})
			}
		}
	})
}
