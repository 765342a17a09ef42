package jetstream

import (
	"fmt"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
)

func write(i int, binary bool) bus.Draft {
	return bus.Draft{
		Subject: events.Join("t", "znode", znode.Aggregate), Header: events.Header{ID: fmt.Sprintf("id-%d", i)}, Expect: bus.Any, Binary: binary,
		Event: &znode.Event{Body: &znode.Event_SessionClosed{SessionClosed: &znode.SessionClosed{Session: int64(i + 1), Reason: znode.Closed}}},
	}
}

// An event is handed back once, and only for the very message that it became.
func TestOwnEventsAreKnownAgain(t *testing.T) {
	var o own
	draft := write(1, true)
	ready, err := wire.Prepare([]bus.Draft{draft})
	if err != nil {
		t.Fatal(err)
	}
	came := events.Recorded{Seq: 7, Subject: draft.Subject, Header: draft.Header, Data: ready[0].Data, Binary: true}
	for name, spoil := range map[string]func(r *events.Recorded){
		"another id":      func(r *events.Recorded) { r.Header.ID = "id-2" },
		"another subject": func(r *events.Recorded) { r.Subject = events.Join("u", "znode", znode.Aggregate) },
		"other bytes":     func(r *events.Recorded) { r.Data = append([]byte{}, r.Data[:len(r.Data)-1]...) },
		"no binary":       func(r *events.Recorded) { r.Binary = false },
	} {
		o.keep([]bus.Draft{draft}, ready)
		r := came
		spoil(&r)
		if m := o.take(r); m != nil {
			t.Errorf("%s: taken for %v", name, m)
		}
		o.clear()
		if m := o.take(came); m != nil {
			t.Errorf("%s: known after all was forgotten: %v", name, m)
		}
	}
	o.keep([]bus.Draft{draft}, ready)
	if m := o.take(came); m != draft.Event {
		t.Errorf("taken for %v", m)
	}
	if m := o.take(came); m != nil {
		t.Errorf("known a second time: %v", m)
	}
}

// What never comes back is forgotten for what is newer.
func TestOwnIsBounded(t *testing.T) {
	var o own
	var came []events.Recorded
	for i := range 2*ownKept + 3 {
		d := write(i, i%2 == 0)
		ready, err := wire.Prepare([]bus.Draft{d})
		if err != nil {
			t.Fatal(err)
		}
		o.keep([]bus.Draft{d}, ready)
		came = append(came, events.Recorded{Subject: d.Subject, Header: d.Header, Data: ready[0].Data, Binary: d.Binary})
	}
	known := 0
	for _, r := range came {
		if o.take(r) != nil {
			known++
		}
	}
	if known != ownKept {
		t.Errorf("%d events are known, want %d", known, ownKept)
	}
}

// A repeated message is looked for as far back as the server remembers it, and a minute more.
func TestHowFarBackARepeatedMessageIsLookedFor(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	if back := now.Sub(mayBeStored(now)); back < wire.Window+30*time.Second || back > 2*wire.Window {
		t.Errorf("%v back, and the server remembers %v", back, wire.Window)
	}
}
