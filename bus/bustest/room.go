package bustest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

func note(by, stream string, seq uint64, size int) bus.Parked {
	return bus.Parked{Reason: fmt.Sprintf("bad record %d", seq), By: by, Stream: stream, StreamSeq: seq, Subject: "ratings", Data: bytes.Repeat([]byte("x"), size)}
}

func mustPark(t *testing.T, b bus.Bus, p bus.Parked) uint64 {
	t.Helper()
	seq, err := b.DeadLetters().Park(ctxOf(t), p)
	if err != nil {
		t.Fatalf("Park of %s %d: %v", p.Stream, p.StreamSeq, err)
	}
	return seq
}

// lettersOf are the letters and the summaries of one owner.
func lettersOf(t *testing.T, b bus.Bus, by string) (held, summaries []bus.Parked) {
	t.Helper()
	err := b.DeadLetters().Each(ctxOf(t), func(p bus.Parked) error {
		switch {
		case p.By != by:
		case p.More != nil:
			summaries = append(summaries, p)
		default:
			held = append(held, p)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("Each: %v", err)
	}
	return held, summaries
}

func knows(t *testing.T, b bus.Bus, p bus.Parked) bool {
	t.Helper()
	ok, err := b.DeadLetters().Knows(ctxOf(t), p)
	if err != nil {
		t.Fatalf("Knows %s %d: %v", p.Stream, p.StreamSeq, err)
	}
	return ok
}

// testRemove forgets a letter and remembers that it was parked.
func testRemove(t *testing.T, b bus.Bus) {
	l, by, stream := b.DeadLetters(), unique(), "kafka:ratings/"+unique()
	first, second := note(by, stream, 1, 10), note(by, stream, 2, 0)
	if knows(t, b, first) {
		t.Fatal("a letter is known before it was parked")
	}
	seq, kept := mustPark(t, b, first), mustPark(t, b, second)
	if !knows(t, b, first) {
		t.Fatal("a parked letter is not known")
	}
	if err := l.Remove(ctxOf(t), seq); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	_, err := l.Show(ctxOf(t), seq)
	wantErr(t, "Show of a removed letter", err, bus.ErrNotFound)
	wantErr(t, "Remove again", l.Remove(ctxOf(t), seq), bus.ErrNotFound)
	_, err = l.Redrive(ctxOf(t), seq, nil)
	wantErr(t, "Redrive of a removed letter", err, bus.ErrNotFound)
	again := mustPark(t, b, first)
	if held, _ := lettersOf(t, b, by); len(held) != 1 || held[0].Seq != kept || !knows(t, b, first) {
		t.Fatalf("parked again as %d behind its removal: %+v", again, held)
	}
	wantErr(t, "Remove of what remembers a removal", l.Remove(ctxOf(t), again), bus.ErrNotFound)
	wantErr(t, "Remove of no letter", l.Remove(ctxOf(t), again+100000), bus.ErrNotFound)

	s := subject(t) // one that was re-driven goes with its mark
	p := bus.Parked{Reason: "r", By: by, Stream: "csv:" + unique(), StreamSeq: 1, Subject: string(s), Data: []byte(`{"unloadAccepted":{}}`)}
	seq = mustPark(t, b, p)
	if _, err := l.Redrive(ctxOf(t), seq, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Remove(ctxOf(t), seq); err != nil {
		t.Fatalf("Remove of a re-driven letter: %v", err)
	}
	if held, _ := lettersOf(t, b, by); len(held) != 1 {
		t.Fatalf("left: %+v", held)
	}
}

func testPurge(t *testing.T, b bus.Bus) {
	l, by, other := b.DeadLetters(), unique(), unique()
	for i := range uint64(5) {
		mustPark(t, b, note(by, "kafka:ratings/"+by, i, 10))
		mustPark(t, b, note(other, "kafka:ratings/"+other, i, 10))
	}
	n, err := l.Purge(ctxOf(t), func(p bus.Parked) bool { return p.By == by && p.StreamSeq < 3 })
	if err != nil || n != 3 {
		t.Fatalf("Purge = %d, %v, want 3", n, err)
	}
	if held, _ := lettersOf(t, b, by); len(held) != 2 || held[0].StreamSeq != 3 {
		t.Fatalf("the purge left %+v", held)
	}
	if held, _ := lettersOf(t, b, other); len(held) != 5 {
		t.Fatalf("the purge of one owner left %d of the other's 5 letters", len(held))
	}
	for i := range uint64(5) {
		mustPark(t, b, note(by, "kafka:ratings/"+by, i, 10))
	}
	if held, _ := lettersOf(t, b, by); len(held) != 2 {
		t.Fatalf("the purge is forgotten: %+v", held)
	}
	if n, err := l.Purge(ctxOf(t), func(p bus.Parked) bool { return p.By == by && p.StreamSeq < 3 }); err != nil || n != 0 {
		t.Fatalf("the same purge again = %d, %v", n, err)
	}
}

func testSettled(t *testing.T, b bus.Bus) {
	l, bzid, name := b.DeadLetters(), "bustest", unique()+".requests"
	log := mustAppend(t, b, draft(subject(t), 0, "x"), draft(subject(t), 0, "y"))
	at := func(bzid, name string) uint64 {
		t.Helper()
		seq, err := l.Settled(ctxOf(t), bzid, name)
		if err != nil {
			t.Fatalf("Settled: %v", err)
		}
		return seq
	}
	if at(bzid, name) != 0 {
		t.Fatal("a reaction that nobody ran is settled")
	}
	for _, seq := range []uint64{log[0], log[1], log[0]} { // the last one of an instance that is behind
		if err := l.Settle(ctxOf(t), bzid, name, seq); err != nil {
			t.Fatalf("Settle: %v", err)
		}
	}
	if got := at(bzid, name); got != log[1] {
		t.Fatalf("settled at %d, want %d", got, log[1])
	}
	if at(bzid, name+"2") != 0 || at("other", name) != 0 {
		t.Fatal("another reaction, or the same of another namespace, is settled as well")
	}
}

// RunLetters runs what a bus owes its owners when the letters have no room or grow old.
// open makes a bus with a stream of its own, of so many bytes (0: plenty) and so long a
// memory (0: long).
func RunLetters(t *testing.T, open func(t *testing.T, limit int64, age time.Duration) bus.Bus) {
	t.Run("shares", func(t *testing.T) { testShares(t, open(t, 1<<20, 0)) })
	t.Run("namespace share", func(t *testing.T) { testNamespaceShare(t, open(t, 1<<20, 0)) })
	t.Run("many streams", func(t *testing.T) { testManyStreams(t, open(t, 64<<10, 0)) })
	t.Run("expiry", func(t *testing.T) { testExpiry(t, open(t, 0, time.Second)) })
}

// testShares fills the share of one source: what exceeds it is counted, and nobody else
// is touched.
func testShares(t *testing.T, b bus.Bus) {
	const flood = 40
	var kept, counted uint64
	for i := range uint64(flood) {
		if mustPark(t, b, note("trainer", fmt.Sprintf("kafka:ratings/%d", i%2), i, 10<<10)) > 0 {
			kept++
		} else {
			counted++
		}
	}
	held, more := lettersOf(t, b, "trainer")
	if kept < 5 || kept > 15 || uint64(len(held)) != kept {
		t.Fatalf("%d letters of 10 KiB were kept and %d are listed, of a share of an eighth of 1 MiB", kept, len(held))
	}
	sum := uint64(0)
	for _, p := range more {
		sum += p.More.Count
		if p.Seq != 0 || p.Time.IsZero() || p.More.Since.IsZero() || len(p.Data) != 0 || p.Subject != "ratings" || !strings.HasPrefix(p.Stream, "kafka:ratings/") ||
			!strings.Contains(p.Reason, fmt.Sprint(p.More.Count)) || !strings.Contains(p.Reason, fmt.Sprintf("bad record %d", p.StreamSeq)) {
			t.Fatalf("summary %+v", p)
		}
	}
	if len(more) != 2 || sum != counted {
		t.Fatalf("%d summaries count %d letters, want one for each partition, and %d", len(more), sum, counted)
	}
	for i := range uint64(flood) { // a reader that was rewound: nothing is counted twice
		p := note("trainer", fmt.Sprintf("kafka:ratings/%d", i%2), i, 10<<10)
		if seq := mustPark(t, b, p); (seq > 0) != (i < kept) {
			t.Fatalf("parked again, record %d is letter %d", i, seq)
		}
		if !knows(t, b, p) {
			t.Fatalf("record %d is not known", i)
		}
	}
	if knows(t, b, note("trainer", "kafka:ratings/0", flood, 1)) || knows(t, b, note("portal", "kafka:ratings/0", 38, 1)) {
		t.Fatal("known without having been parked")
	}
	if _, again := lettersOf(t, b, "trainer"); again[0].More.Count+again[1].More.Count != counted {
		t.Fatalf("counted twice: %+v", again)
	}
	s := subject(t)
	for i := range uint64(5) {
		p := note("portal", "MONOLITH", i+1, 10<<10)
		p.Subject = string(s)
		if mustPark(t, b, p) == 0 {
			t.Fatal("a source has no room because another one's share is full")
		}
	}
	if mustPark(t, b, note("trainer", "kafka:clicks/0", 1, 10<<10)) == 0 {
		t.Fatal("a topic has no room because another one's share is full")
	}
	all := len(held) + len(more) + 1
	if n, err := b.DeadLetters().Purge(ctxOf(t), func(p bus.Parked) bool { return p.By == "trainer" }); err != nil || n != all {
		t.Fatalf("Purge = %d, %v, want %d", n, err, all)
	}
	if held, more := lettersOf(t, b, "trainer"); len(held)+len(more) != 0 {
		t.Fatalf("the purge left %d letters and %d summaries", len(held), len(more))
	}
	if mustPark(t, b, note("trainer", "kafka:ratings/0", flood, 10<<10)) == 0 {
		t.Fatal("the purge made no room")
	}
}

// testNamespaceShare has many sources: together they leave half of the stream to others.
func testNamespaceShare(t *testing.T, b bus.Bus) {
	kept := 0
	for i := range uint64(100) {
		if mustPark(t, b, note("demo", fmt.Sprintf("csv:%d", i), 1, 10<<10)) > 0 {
			kept++
		}
	}
	if kept < 20 || kept > 50 {
		t.Fatalf("%d letters of 10 KiB were kept, of a share of half of 1 MiB", kept)
	}
	s := events.Join("another", "model", "m")
	p := note("portal", "MONOLITH", 1, 10<<10)
	if p.Subject = string(s); mustPark(t, b, p) == 0 {
		t.Fatal("a namespace has no room because another one's share is full")
	}
}

// testManyStreams has as many streams as a client pleases: they share a summary.
func testManyStreams(t *testing.T, b bus.Bus) {
	for i := range uint64(100) {
		mustPark(t, b, note("registry", fmt.Sprintf("zookeeper:/demo/portal/%d", i), i+1, 1<<10))
	}
	held, more := lettersOf(t, b, "registry")
	if len(held) == 0 || len(more) != 1 || int(more[0].More.Count) != 100-len(held) {
		t.Fatalf("%d letters and the summaries %+v of 100 streams", len(held), more)
	}
}

// testExpiry waits until a letter has gone by its age.
func testExpiry(t *testing.T, b bus.Bus) {
	mustPark(t, b, note("demo", "csv:old", 1, 10))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		all, err := b.DeadLetters().List(ctx)
		if err != nil {
			t.Fatalf("the letter does not expire: %v", errors.Join(err, ctx.Err()))
		}
		if len(all) == 0 {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}
