package servables

import (
	"errors"
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/events/replica"
)

// A model is expected here where a plan assigns it to this container, or where this container
// has served that very sub-model.
func TestWhatAServerIsExpectedToServe(t *testing.T) {
	s, b := viewing(t, false)
	ready := make(chan struct{})
	s.Ready = ready
	if !s.expects("anything") {
		t.Error("before the views have caught up nobody knows")
	}
	close(ready)
	registered := func(model, serverType string, task int32, container string) {
		appended(t, b, "replica", fmt.Sprintf("%s/%s:%d/0", model, serverType, task), &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: &replica.Replica{
			ModelName: model, ServerType: serverType, Task: task, Container: container, GrpcAddress: "127.0.0.1:1", HttpAddress: "127.0.0.1:1", Stat: replica.State_AVAILABLE, Version: 1}}}})
	}
	registered("rows", "ps", 0, "c")
	registered("scores", "entry", 0, "c")
	registered("others", "ps", 0, "d")
	registered("gone", "ps", 0, "c")
	appended(t, b, "replica", "gone/ps:0/0", &replica.Event{Body: &replica.Event_Lost{Lost: &replica.Lost{Reason: "it is gone"}}})
	appended(t, b, "publish", "m", planned(3, 1, "j"))
	last, err := b.Log().Last(t.Context())
	if err == nil {
		err = errors.Join(s.Plan.Wait(t.Context(), last), s.Fleet.Wait(t.Context(), last))
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"rows:ps_0": true, "rows:ps_1": false, "rows": false, "rows:entry": false, "scores": true, "scores:entry": true, "scores:ps_0": false,
		"others:ps_0": false, "gone:ps_0": false, "m": true, "m:ps_0": true, "m:ps_1": false, "n": false, "rows:dense_0": false,
	} {
		if s.expects(name) != want {
			t.Errorf("%s is expected: %v", name, !want)
		}
	}
}
