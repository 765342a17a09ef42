package auth_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/react"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host/auth"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// answering is the portal's connection, which knows who may ask, with one command and the reaction
// to requests.
func answering(t *testing.T, w *world) bus.Bus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	b, err := jetstream.Connect(ctx, jetstream.Config{URL: w.url, Name: "portal", BZID: "demo", Keys: w.keys("portal"), CredsFile: w.in("portal.nk"), Askers: w.in(auth.Askers)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	stop, err := b.Commands().Serve(t.Context(), bus.Service{BZID: "demo", Name: "portal", Version: "1.0.0", Endpoints: map[string]bus.Handler{
		"unload": func(ctx context.Context, body []byte) ([]byte, error) {
			_, err := b.Log().Append(ctx, accepted("m", string(body)))
			return nil, err
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	r := react.New(react.Config{Log: b.Log(), Letters: b.DeadLetters(), Owner: "portal", BZID: "demo", Asked: b.Commands().Asked})
	r.Handle("requests", 1, func(r events.Recorded) bool { return strings.HasSuffix(string(r.Subject), ".request") },
		func(_ context.Context, r events.Recorded) ([]bus.Draft, error) {
			return []bus.Draft{accepted("n", r.Event.(*model.Event).GetUnloadRequested().GetReason())}, nil
		})
	running, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(running) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return b
}

func accepted(name, reason string) bus.Draft {
	return bus.Draft{Subject: model.Subject("demo", name), Expect: bus.Any, Event: &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: reason}}}}
}

// asked finds the fact with that reason, and says who asked for it.
func asked(t *testing.T, b bus.Bus, reason string) (who events.Asked) {
	t.Helper()
	wait.Until(t, "the fact "+reason, func() error {
		last, err := b.Log().Last(t.Context())
		if err != nil {
			return err
		}
		found := errors.New("it is not there")
		err = b.Log().Follow(t.Context(), 1, last, func(r events.Recorded) error {
			if e, ok := r.Event.(*model.Event); ok && e.GetUnloadAccepted().GetReason() == reason {
				who, found = r.Header.Asked, nil
			}
			return nil
		})
		return errors.Join(err, found)
	})
	return who
}

// TestOracleFactsSayWhoAsked has an operator ask on a real nats-server, by a command and by a request
// in the log: facts say so by the operator's key. Who does not sign, or says to be another one, is refused.
func TestOracleFactsSayWhoAsked(t *testing.T) {
	w := newWorld(t)
	portal, operator := answering(t, w), w.bus("operator")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	known := func(a events.Asked) bool {
		return a.By == "operator" && strings.HasPrefix(a.Key, "U") && a.From == host && a.Proof == ""
	}
	if _, err := operator.Commands().Call(t.Context(), "demo", "portal.unload", []byte("by command")); err != nil {
		t.Fatal(err)
	}
	if a := asked(t, portal, "by command"); !known(a) {
		t.Errorf("of the command: %+v", a)
	}
	ask := func(reason string) bus.Draft {
		return bus.Draft{Subject: model.Subject("demo", "m").Request(), Expect: bus.Any, Header: events.Header{Asked: events.Asked{By: "portal"}},
			Event: &model.Event{Body: &model.Event_UnloadRequested{UnloadRequested: &model.UnloadRequested{Reason: reason}}}}
	}
	if _, err := operator.Log().Append(t.Context(), ask("by request")); err != nil {
		t.Fatal(err)
	}
	if a := asked(t, portal, "by request"); !known(a) {
		t.Errorf("of the request: %+v", a)
	}

	nc := w.plain("operator") // who tells what it likes
	forged := &nats.Msg{Subject: "monolith.demo.cmd.portal.unload", Data: []byte("forged"), Header: nats.Header{"asked-by": {"portal"}, "asked-key": {asked(t, portal, "by command").Key}}}
	reply, err := nc.RequestMsg(forged, wait.Patience)
	if err != nil || !strings.Contains(string(reply.Data), bus.CodeForbidden) || !strings.Contains(string(reply.Data), "monolith call") {
		t.Errorf("an unsigned command: %s, %v", reply.Data, err)
	}
	forged.Subject, forged.Data = "monolith.demo.model.m.request", []byte(`{"unloadRequested":{"reason":"forged"}}`)
	if _, err := nc.RequestMsg(forged, wait.Patience); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the letter", func() error {
		letters, err := portal.DeadLetters().List(t.Context())
		if err == nil && (len(letters) != 1 || !strings.Contains(letters[0].Reason, "is not signed")) {
			err = errors.New("it is not there")
		}
		return err
	})
	letters, err := portal.DeadLetters().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.DeadLetters().Redrive(t.Context(), letters[0].Seq, nil); err != nil { // and answers for it
		t.Fatal(err)
	}
	if a := asked(t, portal, "forged"); !known(a) {
		t.Errorf("of the letter that was sent again: %+v", a)
	}
}
