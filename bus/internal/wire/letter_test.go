package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
)

// A letter belongs to the namespace that its subject names, and to its owner's where the
// subject names none.
func TestLetterSubject(t *testing.T) {
	for subject, want := range map[string]string{
		"monolith.theirs.model.m": "mdlq.theirs.kafka:a%2Eb/1.7",
		"ratings":                 "mdlq.o%20urs.kafka:a%2Eb/1.7",
	} {
		got := LetterSubject("o urs", bus.Parked{Subject: subject, Stream: "kafka:a.b/1", StreamSeq: 7})
		if got != want {
			t.Errorf("a letter about %s: %s, want %s", subject, got, want)
		}
	}
	for subject, want := range map[string]string{"mdlq.o%20urs.s.7": "o urs", "mdlq.o%2": "o%2"} {
		if got := LetterBZID(subject); got != want {
			t.Errorf("the namespace of %s: %q, want %q", subject, got, want)
		}
	}
}

func TestParseLetter(t *testing.T) {
	for subject, ok := range map[string]bool{
		"mdlq.b.s.7": true, "mdlq.b.s": false, "mdlq.b.s.7.x": false, "mdlqnote.b.s.7": false,
		"mdlq.b.%2.7": false, "mdlq.b.s.-1": false, "mdlq.b.s.x": false,
	} {
		if stream, seq, got := ParseLetter(subject); got != ok || ok && (stream != "s" || seq != 7) {
			t.Errorf("ParseLetter(%q) = %q, %d, %v", subject, stream, seq, got)
		}
	}
}

// A mark stands beside its letter, and is none of its own.
func TestMarks(t *testing.T) {
	if mark := MarkSubject("mdlq.b.s.7"); mark == "mdlq.b.s.7" {
		t.Error("the mark stands in the letter's place")
	} else if letter, ok := IsMark(mark); !ok || letter != "mdlq.b.s.7" {
		t.Errorf("%s marks %q, %v", mark, letter, ok)
	}
	for _, subject := range []string{"mdlq.b.s.7", "mdlq.b.redriven", "mdlq.b.s.7.x.redriven", "mdlq.b.s.7.removed"} {
		if letter, ok := IsMark(subject); ok || letter != "" {
			t.Errorf("%s marks %q", subject, letter)
		}
	}
	if !IsTombstone([]byte(Tombstone)) || IsTombstone([]byte(`{"removed":false}`)) || IsTombstone(nil) {
		t.Error("a tombstone is what removal leaves, and nothing else")
	}
}

func TestLettersThatNameNothing(t *testing.T) {
	whole := bus.Parked{Reason: "bad", By: "portal", Stream: "MONOLITH", StreamSeq: 7}
	for name, cut := range map[string]func(*bus.Parked){
		"no stream": func(p *bus.Parked) { p.Stream = "" }, "no reason": func(p *bus.Parked) { p.Reason = "" }, "no owner": func(p *bus.Parked) { p.By = "" },
	} {
		p := whole
		cut(&p)
		if _, err := EncodeLetter(p); !errors.Is(err, events.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, body := range []string{`{"reason":"bad"}`, `{"stream":"s"}`, `{`, Tombstone} {
		if p := DecodeLetter("mdlq.b.s.7", []byte(body)); !p.Unreadable || string(p.Data) != body || p.Stream != "s" || p.StreamSeq != 7 {
			t.Errorf("%s is read as %+v", body, p)
		}
	}
	if p := DecodeLetter("mdlq.b", []byte(`{"reason":"bad","stream":"s"}`)); !p.Unreadable || p.Subject != "mdlq.b" {
		t.Errorf("what stands elsewhere is read as %+v", p)
	}
}

// What a message cannot hold of a refused one is cut, and the letter says so.
func TestLargeLetters(t *testing.T) {
	encode := func(p bus.Parked) (bus.Parked, int, error) {
		p.By, p.Stream, p.StreamSeq = "trainer", "kafka:t/0", 7
		if p.Reason == "" {
			p.Reason = "bad"
		}
		raw, err := EncodeLetter(p)
		return DecodeLetter("mdlq.b.kafka:t/0.7", raw), len(raw), err
	}
	for n, want := range map[int]string{MaxReason: strings.Repeat("x", MaxReason), MaxReason + 1: strings.Repeat("x", MaxReason) + "…"} {
		if p, _, err := encode(bus.Parked{Reason: strings.Repeat("x", n)}); err != nil || p.Reason != want {
			t.Errorf("a reason of %d bytes: %d bytes are kept, %v", n, len(p.Reason), err)
		}
	}
	if p, _, err := encode(bus.Parked{Data: make([]byte, MaxEvent)}); err != nil || len(p.Data) != MaxEvent || p.Reason != "bad" {
		t.Errorf("the largest event: %d bytes are kept, %q, %v", len(p.Data), p.Reason, err)
	}
	p, _, err := encode(bus.Parked{Data: make([]byte, MaxEvent+1)})
	if err != nil || len(p.Data) != catalog.MaxBytes || p.Reason != "bad (of 655361 bytes the first 524288 are kept here, all of them at kafka:t/0 7)" {
		t.Errorf("a larger message: %d bytes are kept, %q, %v", len(p.Data), p.Reason, err)
	}

	header := func(n int) bus.Parked { return bus.Parked{Header: map[string][]string{"k": {strings.Repeat("x", n)}}} }
	const most = MaxMessage - 1024
	_, small, _ := encode(header(1))
	if p, n, err := encode(header(1 + most - small)); err != nil || n != most || len(p.Header) != 1 || p.Reason != "bad" {
		t.Errorf("headers that just have room: a letter of %d bytes, %d headers, %q, %v", n, len(p.Header), p.Reason, err)
	}
	if p, _, err := encode(header(2 + most - small)); err != nil || len(p.Header) != 0 || p.Reason != "bad (its headers are too large to be kept here)" {
		t.Errorf("headers that have none: %d are kept, %q, %v", len(p.Header), p.Reason, err)
	}

	// What is left may be too large all the same, by its subject; the reason has grown by then.
	subject := func(n int) bus.Parked { return bus.Parked{Subject: strings.Repeat("x", n)} }
	_, small, _ = encode(subject(1))
	n := 1 + most - small - len(" (its headers are too large to be kept here)")
	large := subject(n)
	large.Header = header(100).Header
	if _, size, err := encode(large); err != nil || size != most {
		t.Errorf("a subject that just has room: a letter of %d bytes, %v", size, err)
	}
	large.Subject += "x"
	if _, _, err := encode(large); !errors.Is(err, bus.ErrTooLarge) {
		t.Errorf("a subject that has none: %v", err)
	}
}

// A re-driven letter is a new message: it has the headers of the old one, but for those by
// which the old one was unique or conditional.
func TestRedrive(t *testing.T) {
	p := bus.Parked{Seq: 3, Stream: "MONOLITH", Subject: "monolith.b.model.m.request", Data: []byte("old"), Header: map[string][]string{
		"Nats-Msg-Id": {"1"}, "nats-expected-last-sequence": {"8"}, "CE-ID": {"1"}, "ce-source": {"x"}, "traceparent": {"t"},
	}}
	want := map[string][]string{"ce-id": {"new"}, "Nats-Msg-Id": {"new"}, "ce-source": {"x"}, "traceparent": {"t"}}
	for _, mended := range [][]byte{nil, []byte("mended")} {
		h, data, err := Redrive(p, "new", mended)
		if err != nil || !reflect.DeepEqual(h, want) {
			t.Errorf("%v, %v", h, err)
		}
		if mended == nil && string(data) != "old" || mended != nil && !bytes.Equal(data, mended) {
			t.Errorf("mended as %q: %q", mended, data)
		}
	}
	foreign, unreadable := p, p
	foreign.Subject, unreadable.Unreadable = "ratings", true
	for _, p := range []bus.Parked{foreign, unreadable} {
		if _, _, err := Redrive(p, "new", nil); !errors.Is(err, events.ErrInvalid) || !strings.Contains(err.Error(), "fix it at its source") {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
