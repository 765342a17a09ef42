package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host/connect"
)

// TestReplayOfTheTimeBeforeTheFirstEvent is the state before anything happened, not the
// newest one, and what is not written yet is refused.
func TestReplayOfTheTimeBeforeTheFirstEvent(t *testing.T) {
	srv, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	conn := connect.Config{NATS: srv.URL(), BZID: "demo", Level: "error"}
	b, err := conn.Dial(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i := range 3 {
		name := fmt.Sprint("m", i)
		if _, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join("demo", "model", name), Expect: bus.Any, Event: &model.Event{Body: &model.Event_LoadAccepted{
			LoadAccepted: &model.LoadAccepted{Load: &model.Load{ModelName: name, ModelDir: "/d", NumShard: 1, Version: 1}}}}}); err != nil {
			t.Fatal(err)
		}
	}
	tool := func(args ...string) (int, string, string) {
		return opsTool(append(args, "--nats", srv.URL(), "--log-level", "error")...)
	}
	long := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	for _, until := range []string{long, "1h", "0"} {
		code, out, errs := tool("replay", "--view", "catalog", "--until", until)
		if code != exitOK || !strings.Contains(out, `"seq": 0`) || strings.Contains(out, "m0") {
			t.Errorf("--until %s: exit %d\n%s%s", until, code, out, errs)
		}
		if code, out, errs := tool("events", "--until", until); code != exitOK || out != "" {
			t.Errorf("events --until %s: exit %d\n%s%s", until, code, out, errs)
		}
	}
	if code, out, errs := tool("replay", "--view", "catalog", "--until", "2"); code != exitOK || !strings.Contains(out, "m1") || strings.Contains(out, "m2") {
		t.Errorf("--until 2: exit %d\n%s%s", code, out, errs)
	}
	if code, out, errs := tool("replay", "--view", "catalog"); code != exitOK || !strings.Contains(out, "m2") {
		t.Errorf("the end: exit %d\n%s%s", code, out, errs)
	}
	if code, out, errs := tool("replay", "--view", "catalog", "--diff", "0", "3"); code != exitOK || !strings.Contains(out, "seq: 0 -> 3") {
		t.Errorf("--diff 0 3: exit %d\n%s%s", code, out, errs)
	}
	if code, _, errs := tool("replay", "--view", "catalog", "--until", "999999"); code == exitOK || !strings.Contains(errs, "ends at 3") {
		t.Errorf("--until 999999: exit %d\n%s", code, errs)
	}
}
