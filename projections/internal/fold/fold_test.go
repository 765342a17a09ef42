package fold

import (
	"fmt"
	"maps"
	"testing"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
)

// A fold looks at what is new, readable and of its contexts; what it cannot read is counted
// under its reason, where it is of its contexts or nobody's, and moves the sequence on.
func TestEnter(t *testing.T) {
	mine := events.Join("demo", "model", "m")
	theirs := events.Join("demo", "fleet", "f")
	for name, tc := range map[string]struct {
		seq            uint64
		subject        events.Subject
		empty          bool
		err            error
		readable, mine bool
		at             uint64
		skipped        string
	}{
		"a fact":               {seq: 8, subject: mine, readable: true, mine: true, at: 8},
		"delivered again":      {seq: 7, subject: mine, at: 7},
		"of before":            {seq: 6, subject: mine, at: 7},
		"a request":            {seq: 8, subject: mine.Request(), readable: true, at: 8},
		"another context's":    {seq: 8, subject: theirs, readable: true, at: 8},
		"a stranger":           {seq: 8, subject: "nobody", at: 8, skipped: Subject},
		"malformed":            {seq: 8, subject: mine, err: fmt.Errorf("x: %w", events.ErrMalformed), mine: true, at: 8, skipped: Malformed},
		"malformed, elsewhere": {seq: 8, subject: theirs, err: events.ErrMalformed, at: 8},
		"invalid":              {seq: 8, subject: mine, err: events.ErrInvalid, mine: true, at: 8, skipped: Invalid},
		"unknown":              {seq: 8, subject: mine, err: events.ErrUnknown, mine: true, at: 8, skipped: Unknown},
		"empty":                {seq: 8, subject: mine, empty: true, mine: true, at: 8, skipped: Unknown},
		"an error beside it":   {seq: 8, subject: mine, err: events.ErrUnknown, mine: true, at: 8, skipped: Unknown},
		"an invalid request":   {seq: 8, subject: mine.Request(), err: events.ErrInvalid, at: 8, skipped: Invalid},
	} {
		r := events.Recorded{Seq: tc.seq, Subject: tc.subject, Err: tc.err}
		if !tc.empty && (tc.err == nil || name == "an error beside it") {
			r.Event = &model.Event{}
		}
		at, skipped := uint64(7), Skipped(nil)
		_, readable, isMine := Enter(&at, &skipped, r, "server", "model")
		want := Skipped(nil)
		if tc.skipped != "" {
			want = Skipped{tc.skipped: 1}
		}
		if readable != tc.readable || isMine != tc.mine || at != tc.at || !maps.Equal(skipped, want) {
			t.Errorf("%s: readable %v, mine %v, at %d, skipped %v; want %+v", name, readable, isMine, at, skipped, tc)
		}
	}
}

// A fold that panicked has passed its record, and says so.
func TestFailed(t *testing.T) {
	type state struct {
		seq     uint64
		skipped Skipped
	}
	failed := Failed(func(s *state) (*uint64, *Skipped) { return &s.seq, &s.skipped })
	s := failed(failed(state{seq: 3}, events.Recorded{Seq: 4}), events.Recorded{Seq: 9})
	if s.seq != 9 || !maps.Equal(s.skipped, Skipped{Panicked: 2}) {
		t.Errorf("%+v", s)
	}
}
