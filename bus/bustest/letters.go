package bustest

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

// testUndecodable brings bytes into the log that no owner wrote, in the only way the
// contract has.
func testUndecodable(t *testing.T, b bus.Bus) {
	binary := map[string][]string{"content-type": {"application/protobuf"}}
	for _, tc := range []struct {
		name   string
		header map[string][]string
		data   string
		want   error // nil: it can be decoded
	}{
		{"no JSON", nil, "no json", events.ErrMalformed},
		{"cut short", nil, `{"unloadAccepted":{"rea`, events.ErrMalformed},
		{"unknown fact", nil, `{"neverHeardOf":{}}`, events.ErrUnknown},
		{"request among the facts", nil, `{"unloadRequested":{}}`, events.ErrInvalid},
		{"binary", binary, "\x72\x03\x0a\x01x", nil},
		{"broken binary", binary, "\x72\x09\x0a\x01x", events.ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := subject(t)
			letter, err := b.DeadLetters().Park(ctxOf(t), bus.Parked{
				Reason: "put here", By: "bustest", Stream: "csv:" + unique(), StreamSeq: 1,
				Subject: string(s), Header: tc.header, Data: []byte(tc.data),
			})
			if err != nil {
				t.Fatal(err)
			}
			seq, err := b.DeadLetters().Redrive(ctxOf(t), letter, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := collect(t, b, seq, seq, s)
			if len(got) != 1 || string(got[0].Data) != tc.data || got[0].Binary != (tc.header != nil) {
				t.Fatalf("got %+v", got)
			}
			r := got[0]
			if tc.want == nil {
				if r.Err != nil || reason(t, r) != "x" || r.Header.Type != "unloadAccepted" {
					t.Fatalf("got %+v", r)
				}
				return
			}
			wantErr(t, "decoding", r.Err, tc.want)
			if r.Event != nil {
				t.Fatalf("an event %v beside the error", r.Event)
			}
		})
	}
}

func testLetters(t *testing.T, b bus.Bus) {
	l := b.DeadLetters()
	want := bus.Parked{
		Reason: "bad column 3", By: "portal", Stream: "kafka:ratings/" + unique(), StreamSeq: rand.Uint64(),
		Subject: "ratings", Header: map[string][]string{"A": {"1", "2"}}, Data: []byte{0xff, 0x00, 'x'},
	}
	seq, err := l.Park(ctxOf(t), want)
	if err != nil {
		t.Fatalf("Park: %v", err)
	}
	if again, err := l.Park(ctxOf(t), want); err != nil || again != seq {
		t.Fatalf("Park again = %d, %v, want %d", again, err, seq)
	}
	check := func(what string, got bus.Parked, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got.Seq != seq || got.Time.IsZero() || got.Redriven || got.Reason != want.Reason || got.By != want.By ||
			got.Stream != want.Stream || got.StreamSeq != want.StreamSeq || got.Subject != want.Subject ||
			string(got.Data) != string(want.Data) || !maps.EqualFunc(got.Header, want.Header, func(a, b []string) bool { return len(a) == len(b) && a[0] == b[0] && a[1] == b[1] }) {
			t.Fatalf("%s = %+v, want %+v", what, got, want)
		}
	}
	got, err := l.Show(ctxOf(t), seq)
	check("Show", got, err)
	other := want
	other.StreamSeq++
	later, err := l.Park(ctxOf(t), other)
	if err != nil || later <= seq {
		t.Fatalf("Park of another = %d, %v, behind %d", later, err, seq)
	}
	all, err := l.List(ctxOf(t))
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	n, before := 0, uint64(0)
	for _, p := range all {
		if p.Seq <= before {
			t.Fatalf("List is out of order: %d behind %d", p.Seq, before)
		}
		before = p.Seq
		if p.Stream == want.Stream {
			n++
		}
		if p.Seq == seq {
			check("List", p, nil)
		}
	}
	if n != 2 {
		t.Fatalf("List has %d letters of %s, want 2", n, want.Stream)
	}
	_, err = l.Show(ctxOf(t), later+1000)
	wantErr(t, "Show of no letter", err, bus.ErrNotFound)
	_, err = l.Redrive(ctxOf(t), seq, nil)
	wantErr(t, "Redrive of a Kafka record", err, events.ErrInvalid)
	_, err = l.Park(ctxOf(t), bus.Parked{Stream: "x", By: "y"})
	wantErr(t, "Park without a reason", err, events.ErrInvalid)

	huge := want
	huge.StreamSeq, huge.Data = want.StreamSeq+2, make([]byte, 3<<20)
	seq, err = l.Park(ctxOf(t), huge)
	if err != nil {
		t.Fatalf("Park of 3 MiB: %v", err)
	}
	if got, err := l.Show(ctxOf(t), seq); err != nil || len(got.Data) == 0 || len(got.Data) >= 3<<20 || got.Reason == huge.Reason {
		t.Fatalf("a letter of 3 MiB keeps %d bytes with the reason %q, %v", len(got.Data), got.Reason, err)
	}
}

func testRedrive(t *testing.T, b bus.Bus) {
	s := subject(t)
	bad, err := b.DeadLetters().Park(ctxOf(t), bus.Parked{
		Reason: "typing error", By: "portal", Stream: "csv:" + unique(), StreamSeq: 7, Subject: string(s),
		Header: map[string][]string{
			"ce-id": {"old"}, "Nats-Msg-Id": {"old"}, "ce-source": {"somebody"}, "correlation-id": {"c1"},
			"Nats-Expected-Last-Subject-Sequence": {"12345"},
		},
		Data: []byte(`{"unloadAcepted":{}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	seq, err := b.DeadLetters().Redrive(ctxOf(t), bad, []byte(`{"unloadAccepted":{"reason":"fixed"}}`))
	if err != nil {
		t.Fatalf("Redrive: %v", err)
	}
	r, err := b.Log().Get(ctxOf(t), seq)
	if err != nil || reason(t, r) != "fixed" || r.Subject != s {
		t.Fatalf("re-driven as %+v, %v", r, err)
	}
	if r.Header.ID == "old" || r.Header.ID == "" || r.Header.Source != "somebody" || r.Header.Correlation != "c1" {
		t.Fatalf("re-driven under the header %+v", r.Header)
	}
	if p, err := b.DeadLetters().Show(ctxOf(t), bad); err != nil || !p.Redriven {
		t.Fatalf("Show = %+v, %v, want it marked", p, err)
	}
	all, err := b.DeadLetters().List(ctxOf(t))
	if err != nil {
		t.Fatal(err)
	}
	marked := false
	for _, p := range all {
		marked = marked || (p.Seq == bad && p.Redriven)
	}
	if !marked {
		t.Fatalf("List does not show letter %d as re-driven", bad)
	}
	_, err = b.DeadLetters().Redrive(ctxOf(t), bad, nil)
	wantErr(t, "Redrive again", err, bus.ErrConflict)
	_, err = b.DeadLetters().Redrive(ctxOf(t), bad+100000, nil)
	wantErr(t, "Redrive of no letter", err, bus.ErrNotFound)
}
