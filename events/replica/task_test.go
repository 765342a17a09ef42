package replica_test

import (
	"testing"

	"github.com/monolith-go/monolith/events/replica"
)

// What a sub-model is registered as leads back to it, whatever its name.
func TestTaskOf(t *testing.T) {
	for sub, want := range map[string]struct {
		kind string
		task int32
	}{
		"entry": {"entry", 0}, "ps_3": {"ps", 3}, "dense_1": {"dense", 1}, "ps_item_embedding_0": {"ps_item_embedding_0", 0},
		"ps_01": {"ps_01", 0}, "ps_x": {"ps_x", 0}, "ps_-1": {"ps_-1", 0}, "entry_1": {"entry_1", 0}, "user tower": {"user tower", 0},
	} {
		kind, task, ok := replica.TaskOf(sub)
		if !ok || kind != want.kind || task != want.task || replica.SubModel(kind, task) != sub {
			t.Errorf("%q is %s %d %v", sub, kind, task, ok)
		}
		r := &replica.Replica{ModelName: "m", ServerType: kind, Task: task, Container: "c"}
		if err := (&replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}}).Validate(r.Key()); err != nil {
			t.Errorf("%q: %v", sub, err)
		}
	}
	if kind, task, ok := replica.TaskOf("dense"); !ok || kind != "dense" || task != 0 {
		t.Errorf("dense is %s %d %v", kind, task, ok)
	}
	for _, sub := range []string{"", "ps", "a:b", "a/b"} {
		if kind, _, ok := replica.TaskOf(sub); ok {
			t.Errorf("%q is %s", sub, kind)
		}
	}
}
