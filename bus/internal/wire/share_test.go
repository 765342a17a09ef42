package wire

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

// A source has an eighth of the stream's bytes, a namespace half of them.
func TestSharesOfBytes(t *testing.T) {
	const limit = 800
	var u Usage
	u.Add("kafka:t", 60)
	for cost, fits := range map[int64]bool{40: true, 41: false} {
		if err := u.Fits("kafka:t", cost, limit); (err == nil) != fits || err != nil && !errors.Is(err, bus.ErrFull) {
			t.Errorf("%d bytes behind 60 of 100: %v", cost, err)
		}
	}
	for _, none := range []int64{0, -1} {
		if err := u.Fits("kafka:t", 1<<40, none); err != nil {
			t.Errorf("in a stream without a limit, %d: %v", none, err)
		}
	}
	u.Add("kafka:t", -60)
	if err := u.Fits("kafka:t", 100, limit); err != nil {
		t.Errorf("once the letter was removed: %v", err)
	}
	for _, source := range []string{"a", "b", "c", "d"} {
		u.Add(source, 95)
	}
	for cost, fits := range map[int64]bool{20: true, 21: false} {
		err := u.Fits("kafka:t", cost, limit)
		if (err == nil) != fits || err != nil && (!errors.Is(err, bus.ErrFull) || !strings.Contains(err.Error(), "namespace")) {
			t.Errorf("%d bytes behind the namespace's 380 of 400: %v", cost, err)
		}
	}
}

func TestSharesOfLetters(t *testing.T) {
	var u Usage
	for range 100_000 {
		u.Add("kafka:t", LetterCost("mdlq.b.kafka%3At.1", 100))
	}
	if err := u.Fits("kafka:t", 200, -1); !errors.Is(err, bus.ErrFull) {
		t.Errorf("behind 100,000 letters: %v", err)
	}
	if err := u.Fits("kafka:other", 200, -1); err != nil {
		t.Errorf("of another source: %v", err)
	}
	u.Add("kafka:t", -LetterCost("mdlq.b.kafka%3At.1", 100))
	if err := u.Fits("kafka:t", 200, -1); err != nil {
		t.Errorf("once one of them was removed: %v", err)
	}
}

// The subject counts twice, in the message and in the index of the stream.
func TestLetterCost(t *testing.T) {
	if got := LetterCost("mdlq.b.s.1", 1000); got != 2*10+1000+128 {
		t.Errorf("a letter takes %d bytes", got)
	}
}

func TestShareOf(t *testing.T) {
	for stream, want := range map[string]string{
		"kafka:t/3": "kafka:t", "kafka:a/b/3": "kafka:a/b", "kafka:t": "kafka:t", // all partitions of a topic,
		"csv:f.csv": "csv:f.csv", "MONOLITH": "MONOLITH", // each file, each stream,
		"client:c1": "client", // and the kind of what clients name
	} {
		if got := ShareOf(stream); got != want {
			t.Errorf("ShareOf(%q) = %q, want %q", stream, got, want)
		}
	}
}

// A summary has one subject for each owner and stream, however long their names are.
func TestSummarySubject(t *testing.T) {
	at := func(by, stream string) string { return SummarySubject("b.z", bus.Parked{By: by, Stream: stream}) }
	if got := at("trainer j", "kafka:t/3"); got != "mdlqnote.b%2Ez.more.trainer%20j.kafka:t/3" {
		t.Error(got)
	}
	if a, b := at("p", "client:1"), at("p", "client:2"); a != b || !strings.HasSuffix(a, ".client") {
		t.Errorf("%s and %s: a summary for each name that clients draw", a, b)
	}
	if got := at(strings.Repeat("x", 300), "s"); !strings.Contains(got, "."+strings.Repeat("x", 300)+".s") {
		t.Errorf("300 bytes were cut: %s", got)
	}
	if got := at(strings.Repeat("x", 301), "s"); strings.Contains(got, strings.Repeat("x", 301)) || !strings.Contains(got, strings.Repeat("x", 300)) {
		t.Errorf("301 bytes became %s", got)
	}
}

// A summary counts each letter once when its owner parks in the order of the stream, whose
// first sequence may be 0.
func TestSummary(t *testing.T) {
	first := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	letter := func(seq uint64) bus.Parked {
		return bus.Parked{Reason: "bad", By: "trainer", Stream: "kafka:t/0", StreamSeq: seq, Subject: "t"}
	}
	var s Summary
	if s.Counts(letter(0)) {
		t.Error("a summary of nothing counts a letter")
	}
	s = s.With(letter(0), first).With(letter(4), first.Add(time.Hour))
	for seq, counted := range map[uint64]bool{0: true, 4: true, 5: false} {
		if s.Counts(letter(seq)) != counted {
			t.Errorf("counts %d: %v", seq, !counted)
		}
	}
	data, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := DecodeSummary(data)
	if err != nil || again != s {
		t.Errorf("%+v came back as %+v, %v", s, again, err)
	}
	if _, err := DecodeSummary([]byte("{")); !errors.Is(err, events.ErrMalformed) {
		t.Errorf("half a summary: %v", err)
	}
	p := s.Parked()
	if p.More == nil || p.More.Count != 2 || !p.More.Since.Equal(first) || !p.Time.Equal(first.Add(time.Hour)) || p.StreamSeq != 4 ||
		p.Reason != "2 more refused since 2026-01-02T03:04:05Z had no room; the newest: bad" {
		t.Errorf("it is listed as %+v", p)
	}
}
