// Package bustest is the contract of package bus as a test: every implementation passes
// it, and nothing else may be relied on.
package bustest

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// patience bounds every wait of the suite; only a failure takes so long.
const patience = wait.Patience

// Run runs the suite. Each part gets a bus from open, which may be shared with other
// parts and closes itself with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) bus.Bus) {
	for _, part := range []struct {
		name string
		test func(*testing.T, bus.Bus)
	}{
		{"append", testAppend},
		{"append refuses", testAppendRefuses},
		{"expected sequences", testExpected},
		{"atomic", testAtomic},
		{"race", testRace},
		{"resend", testResend},
		{"follow", testFollow},
		{"follow ends", testFollowEnds},
		{"envelope", testEnvelope},
		{"undecodable", testUndecodable},
		{"time", testSeqAt},
		{"letters", testLetters},
		{"redrive", testRedrive},
		{"letters removed", testRemove},
		{"letters purged", testPurge},
		{"settled", testSettled},
		{"deltas", testDeltas},
		{"deltas follow", testDeltasFollow},
		{"deltas trimmed", testTrimmed},
		{"commands", testCommands},
		{"commands unanswered", testUnanswered},
		{"signals", testSignals},
		{"leases", testLeases},
		{"lease renewed", testRenewed},
		{"lease handover", testHandover},
		{"log trimmed", testLogTrimmed}, // last of those that share a bus
		{"close", testClose},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, open(t)) })
	}
}

// unique is a word no other part uses, so that parts may share a bus.
func unique() string { return rand.Text()[:12] }

func subject(t *testing.T) events.Subject {
	t.Helper()
	return events.Join("bustest", "model", unique())
}

func ctxOf(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// refused is a fact with a text in it, valid on every aggregate.
func refused(reason string) *model.Event {
	return &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: reason}}}
}

func draft(s events.Subject, expect uint64, reason string) bus.Draft {
	return bus.Draft{Subject: s, Event: refused(reason), Expect: expect, Header: events.Header{Source: "bustest"}}
}

// reason reads what refused wrote.
func reason(t *testing.T, r events.Recorded) string {
	t.Helper()
	e, ok := r.Event.(*model.Event)
	if !ok {
		t.Fatalf("sequence %d holds %T (%v), want a model event", r.Seq, r.Event, r.Err)
	}
	return e.GetUnloadAccepted().GetReason()
}

func mustAppend(t *testing.T, b bus.Bus, drafts ...bus.Draft) []uint64 {
	t.Helper()
	seqs, err := b.Log().Append(ctxOf(t), drafts...)
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	if len(seqs) != len(drafts) {
		t.Fatalf("Append of %d drafts returned the sequences %v", len(drafts), seqs)
	}
	return seqs
}

func mustLast(t *testing.T, b bus.Bus) uint64 {
	t.Helper()
	last, err := b.Log().Last(ctxOf(t))
	if err != nil {
		t.Fatalf("Last: %v", err)
	}
	return last
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

// collect follows [from, until] of one subject.
func collect(t *testing.T, b bus.Bus, from, until uint64, s events.Subject) []events.Recorded {
	t.Helper()
	var got []events.Recorded
	err := b.Log().Follow(ctxOf(t), from, until, func(r events.Recorded) error {
		if r.Subject == s {
			got = append(got, r)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("Follow(%d, %d): %v", from, until, err)
	}
	return got
}
