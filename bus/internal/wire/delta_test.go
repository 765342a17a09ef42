package wire

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

// Of one publish the first delta is guarded, and each has an id.
func TestCheckDeltas(t *testing.T) {
	in := []bus.DeltaDraft{{Subject: "msync.b.j.0", Expect: 7, ID: "mine"}, {Subject: "msync.b.j.0", Expect: 8}, {Subject: "msync.b.j.0", Expect: 9}}
	out, err := CheckDeltas(in)
	if err != nil || len(out) != 3 {
		t.Fatal(out, err)
	}
	if out[0].Expect != 7 || out[1].Expect != bus.Any || out[2].Expect != bus.Any {
		t.Errorf("guarded by %d, %d and %d", out[0].Expect, out[1].Expect, out[2].Expect)
	}
	if out[0].ID != "mine" || out[1].ID == "" || out[2].ID == "" || out[1].ID == out[2].ID {
		t.Errorf("ids %q, %q and %q", out[0].ID, out[1].ID, out[2].ID)
	}
	if in[1].Expect != 8 || in[1].ID != "" {
		t.Errorf("the caller's draft was changed: %+v", in[1])
	}
}

func TestDeltasThatAreRefused(t *testing.T) {
	const subject = "msync.b.j.0"
	whole := bus.DeltaDraft{Subject: subject, ID: "id", Traceparent: "00-1-2-01"}
	room := MaxMessage - 512 - len(whole.ID) - len(whole.Traceparent) - len(subject)
	sized := func(n int) []bus.DeltaDraft { d := whole; d.Data = make([]byte, n); return []bus.DeltaDraft{d} }
	many := func(n int) []bus.DeltaDraft {
		drafts := make([]bus.DeltaDraft, n)
		for i := range drafts {
			drafts[i].Subject = subject
		}
		return drafts
	}
	for _, tc := range []struct {
		name   string
		drafts []bus.DeltaDraft
		want   error
	}{
		{"as many as may be", many(MaxDrafts), nil},
		{"too many", many(MaxDrafts + 1), bus.ErrTooLarge},
		{"as large as may be", sized(room), nil},
		{"too large", sized(room + 1), bus.ErrTooLarge},
		{"no subject", []bus.DeltaDraft{{Subject: "msync..0"}}, events.ErrInvalid},
		{"not a delta's", []bus.DeltaDraft{{Subject: "monolith.b.j.0"}}, events.ErrInvalid},
		{"the root alone", []bus.DeltaDraft{{Subject: "msync"}}, events.ErrInvalid},
		{"two subjects", []bus.DeltaDraft{{Subject: subject}, {Subject: "msync.b.j.1"}}, events.ErrInvalid},
		{"one id twice", []bus.DeltaDraft{{Subject: subject, ID: "a"}, {Subject: subject, ID: "a"}}, events.ErrInvalid},
		{"an id of two lines", []bus.DeltaDraft{{Subject: subject, ID: "a\r\nNats-X: 1"}}, events.ErrInvalid},
	} {
		if _, err := CheckDeltas(tc.drafts); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	if _, err := CheckDeltas(sized(MaxMessage)); err == nil || !strings.Contains(err.Error(), "at most 1047552 are stored") {
		t.Errorf("the refusal names no size that is taken: %v", err)
	} else if _, err := CheckDeltas(sized(1047552)); err != nil {
		t.Errorf("the size that the refusal names is refused: %v", err)
	}
}

func TestDeltaHeader(t *testing.T) {
	for _, tc := range []struct {
		traceparent string
		want        map[string][]string
	}{
		{"", map[string][]string{"Nats-Msg-Id": {"id"}, "content-type": {"application/protobuf"}}},
		{"00-1-2-01", map[string][]string{"Nats-Msg-Id": {"id"}, "content-type": {"application/protobuf"}, "traceparent": {"00-1-2-01"}}},
	} {
		got := DeltaHeader(bus.DeltaDraft{ID: "id", Traceparent: tc.traceparent})
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%v, want %v", got, tc.want)
		}
		if d := Delta(bus.StoredDelta{}, got); d.Traceparent != tc.traceparent {
			t.Errorf("%q came back as %q", tc.traceparent, d.Traceparent)
		}
	}
}
