package wire

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/znode"
)

func unload(m string, h events.Header, expect uint64) bus.Draft {
	return bus.Draft{Subject: events.Join("b", "model", m), Header: h, Expect: expect,
		Event: &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{}}}}
}

// Of each aggregate the first event is guarded; an event without an id gets one.
func TestPrepare(t *testing.T) {
	binary := unload("n", events.Header{}, 3)
	binary.Binary = true
	out, err := Prepare([]bus.Draft{unload("m", events.Header{ID: "mine", Source: "portal"}, 5), unload("m", events.Header{}, 6), binary})
	if err != nil || len(out) != 3 {
		t.Fatal(out, err)
	}
	if out[0].Expect != 5 || out[1].Expect != bus.Any || out[2].Expect != 3 {
		t.Errorf("guarded by %d, %d and %d", out[0].Expect, out[1].Expect, out[2].Expect)
	}
	if out[0].Header.ID != "mine" || out[1].Header.ID == "" || out[1].Header.ID == out[2].Header.ID {
		t.Errorf("ids %q, %q and %q", out[0].Header.ID, out[1].Header.ID, out[2].Header.ID)
	}
	for i, want := range []string{JSON, JSON, Protobuf} {
		m := out[i].Envelope(time.Unix(1, 0))
		r := Record(7, out[i].Subject, time.Unix(2, 0), m, out[i].Data, nil)
		if m[ContentType][0] != want || r.Err != nil || r.Header.Type != "unloadAccepted" || r.Header.ID != out[i].Header.ID {
			t.Errorf("event %d, %s: read back as %+v", i, m[ContentType], r)
		}
	}
}

func TestDraftsThatAreRefused(t *testing.T) {
	many := func(n int) []bus.Draft {
		drafts := make([]bus.Draft, n)
		for i := range drafts {
			drafts[i] = unload("m", events.Header{}, bus.Any)
		}
		return drafts
	}
	written := func(n int) []bus.Draft {
		return []bus.Draft{{Subject: events.Join("b", znode.Context, znode.Aggregate), Binary: true, Event: &znode.Event{Body: &znode.Event_Imported{
			Imported: &znode.Imported{Kind: znode.Imported_WRITTEN, Path: "/a", Czxid: 1, Mzxid: 1, Data: make([]byte, n)}}}}}
	}
	body, err := Prepare(written(1 << 18))
	if err != nil {
		t.Fatal(err)
	}
	rest := len(body[0].Data) - 1<<18
	headed := func(n int) []bus.Draft {
		return []bus.Draft{unload("m", events.Header{ID: "i", Source: strings.Repeat("x", n)}, 0)}
	}
	empty, err := Prepare(headed(0))
	if err != nil {
		t.Fatal(err)
	}
	room := MaxEvent - len(empty[0].Data) - HeaderSize(empty[0].Header, empty[0].Subject)

	for _, tc := range []struct {
		name   string
		drafts []bus.Draft
		want   error
	}{
		{"as many as may be", many(MaxDrafts), nil},
		{"too many", many(MaxDrafts + 1), bus.ErrTooLarge},
		{"the largest body", written(catalog.MaxBytes - rest), nil},
		{"a larger one", written(catalog.MaxBytes - rest + 1), bus.ErrTooLarge},
		{"the largest envelope", headed(room), nil},
		{"a larger one", headed(room + 1), bus.ErrTooLarge},
		{"no event", []bus.Draft{{Subject: events.Join("b", "model", "m")}}, events.ErrInvalid},
		{"an event of another context", []bus.Draft{{Subject: events.Join("b", "layout", "m"), Event: &model.Event{}}}, events.ErrInvalid},
		{"no subject", []bus.Draft{{Subject: "m", Event: &model.Event{}}}, events.ErrInvalid},
		{"one id twice", []bus.Draft{unload("m", events.Header{ID: "i"}, 0), unload("n", events.Header{ID: "i"}, 0)}, events.ErrInvalid},
		{"a source of two lines", []bus.Draft{unload("m", events.Header{Source: "a\nb"}, 0)}, events.ErrInvalid},
	} {
		if _, err := Prepare(tc.drafts); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

// What the caller knows is not decoded again; what it does not know is.
func TestRecordOfWhatIsKnown(t *testing.T) {
	out, err := Prepare([]bus.Draft{unload("m", events.Header{ID: "i"}, 0)})
	if err != nil {
		t.Fatal(err)
	}
	mine := &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{}}}
	for _, event := range []*model.Event{mine, nil} {
		r := Record(7, out[0].Subject, time.Unix(2, 0), out[0].Envelope(time.Unix(1, 0)), out[0].Data, func(r events.Recorded) proto.Message {
			if r.Seq != 7 || r.Header.ID != "i" {
				t.Errorf("asked about %+v", r)
			}
			if event == nil {
				return nil
			}
			return event
		})
		if r.Err != nil || (r.Event == proto.Message(mine)) != (event != nil) || !proto.Equal(r.Event, mine) || r.Header.Type != "unloadAccepted" {
			t.Errorf("known: %v; %+v", event != nil, r)
		}
	}
	if r := Record(8, out[0].Subject, time.Unix(2, 0), nil, []byte("{"), nil); !errors.Is(r.Err, events.ErrMalformed) || r.Event != nil || r.Header.ID != "MONOLITH-8" || string(r.Data) != "{" {
		t.Errorf("half an event: %+v", r)
	}
}

// What is reckoned for the envelope is no less than it takes on the wire.
func TestHeaderSize(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for _, h := range []events.Header{{}, {ID: long}, {Source: long}, {ID: long, Type: long, Source: long, Correlation: long, Causation: long, Traceparent: long}} {
		for _, subject := range []string{"m", long} {
			takes := len(subject)
			for k, v := range Encode(h, subject, time.Unix(1, 999_999_999)) {
				takes += len(k) + len(": ") + len(v[0]) + len("\r\n")
			}
			if got := HeaderSize(h, subject); got < takes || got > takes+1024 {
				t.Errorf("%d bytes are reckoned, %d are taken", got, takes)
			}
		}
	}
}

func TestHeadersByHand(t *testing.T) {
	for _, tc := range []struct {
		header map[string][]string
		id     string
		binary bool
	}{
		{nil, "MONOLITH-7", false},
		{map[string][]string{"ce-id": {}}, "MONOLITH-7", false},
		{map[string][]string{"Ce-Id": {}, "CE-ID": {"a"}}, "a", false},
		{map[string][]string{"Nats-Msg-Id": {"a"}}, "a", false},
		{map[string][]string{"Nats-Msg-Id": {"a"}, "ce-id": {"b"}}, "b", false},
		{map[string][]string{"Content-Type": {"Application/Protobuf ; a=b"}}, "MONOLITH-7", true},
	} {
		if h, binary := Decode(tc.header, LogStream, 7); h.ID != tc.id || binary != tc.binary {
			t.Errorf("%v: id %q, binary %v", tc.header, h.ID, binary)
		}
	}
}
