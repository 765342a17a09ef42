package bustest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/znode"
)

func testAppend(t *testing.T, b bus.Bus) {
	s := subject(t)
	before := mustLast(t, b)
	seqs := mustAppend(t, b, draft(s, 0, "one"), draft(s, 99999, "two: only the first has an expected sequence"))
	if seqs[0] <= before || seqs[1] != seqs[0]+1 {
		t.Fatalf("sequences %v behind %d", seqs, before)
	}
	last, err := b.Log().LastOf(ctxOf(t), s)
	if err != nil || last != seqs[1] {
		t.Fatalf("LastOf = %d, %v, want %d", last, err, seqs[1])
	}
	r, err := b.Log().Get(ctxOf(t), seqs[0])
	if err != nil || reason(t, r) != "one" || r.Subject != s || r.Seq != seqs[0] {
		t.Fatalf("Get(%d) = %+v, %v", seqs[0], r, err)
	}
	if last, err := b.Log().LastOf(ctxOf(t), subject(t)); err != nil || last != 0 {
		t.Fatalf("LastOf an unused subject = %d, %v", last, err)
	}
	_, err = b.Log().Get(ctxOf(t), mustLast(t, b)+1000)
	wantErr(t, "Get behind the end", err, bus.ErrNotFound)
	_, err = b.Log().Get(ctxOf(t), 0)
	wantErr(t, "Get(0)", err, bus.ErrNotFound)
	if seqs, err := b.Log().Append(ctxOf(t)); err != nil || len(seqs) != 0 {
		t.Fatalf("Append of nothing = %v, %v", seqs, err)
	}
}

func testAppendRefuses(t *testing.T, b bus.Bus) {
	s := subject(t)
	request := &model.Event{Body: &model.Event_UnloadRequested{UnloadRequested: &model.UnloadRequested{}}}
	for _, tc := range []struct {
		name string
		bad  bus.Draft
		want error
	}{
		{"no event", bus.Draft{Subject: s, Expect: bus.Any}, events.ErrInvalid},
		{"no body", bus.Draft{Subject: s, Event: &model.Event{}, Expect: bus.Any}, events.ErrInvalid},
		{"foreign event", bus.Draft{Subject: s, Event: &publish.Event{}, Expect: bus.Any}, events.ErrInvalid},
		{"request among the facts", bus.Draft{Subject: s, Event: request, Expect: bus.Any}, events.ErrInvalid},
		{"no subject", bus.Draft{Subject: "monolith.x", Event: refused("x"), Expect: bus.Any}, events.ErrInvalid},
		{"no such context", bus.Draft{Subject: events.Join("x", "cmd", "y"), Event: refused("x"), Expect: bus.Any}, events.ErrInvalid},
		{"broken header", bus.Draft{Subject: s, Event: refused("x"), Expect: bus.Any, Header: events.Header{Source: "a\r\nNats-Rollup: all"}}, events.ErrInvalid},
		{"beyond a bound", draft(s, bus.Any, strings.Repeat("x", 2<<20)), events.ErrInvalid},
		{"too large", bus.Draft{Subject: events.Join("bustest", "znode", znode.Aggregate), Expect: bus.Any, Event: &znode.Event{Body: &znode.Event_Proposed{
			Proposed: &znode.Proposed{Ops: []*znode.Op{{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: "/x", Data: make([]byte, 2<<20)}}}}}}}}, bus.ErrTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := mustLast(t, b)
			_, err := b.Log().Append(ctxOf(t), draft(s, bus.Any, "good"), tc.bad)
			wantErr(t, "Append", err, tc.want)
			if after := mustLast(t, b); after != before {
				t.Fatalf("the log went from %d to %d for a refused append", before, after)
			}
		})
	}
	t.Run("an id twice", func(t *testing.T) {
		d := draft(s, bus.Any, "x")
		d.Header.ID = unique()
		_, err := b.Log().Append(ctxOf(t), d, d)
		wantErr(t, "Append", err, events.ErrInvalid)
	})
	t.Run("too many", func(t *testing.T) {
		_, err := b.Log().Append(ctxOf(t), slices.Repeat([]bus.Draft{draft(s, bus.Any, "x")}, 1001)...)
		wantErr(t, "Append", err, bus.ErrTooLarge)
	})
}

func testExpected(t *testing.T, b bus.Bus) {
	s := subject(t)
	mustAppend(t, b, draft(subject(t), bus.Any, "somebody else"))
	one := mustAppend(t, b, draft(s, 0, "one"))[0]
	_, err := b.Log().Append(ctxOf(t), draft(s, 0, "stale"))
	wantErr(t, "a stale expected sequence", err, bus.ErrConflict)
	mustAppend(t, b, draft(subject(t), bus.Any, "somebody else again"))
	two := mustAppend(t, b, draft(s, one, "two"))[0]
	mustAppend(t, b, draft(s, bus.Any, "unguarded"))
	_, err = b.Log().Append(ctxOf(t), draft(s, two, "stale again"))
	wantErr(t, "an expected sequence passed by an append that expects none", err, bus.ErrConflict)
}

func testAtomic(t *testing.T, b bus.Bus) {
	s, other := subject(t), subject(t)
	mustAppend(t, b, draft(other, 0, "taken"))
	before := mustLast(t, b)
	_, err := b.Log().Append(ctxOf(t), draft(s, 0, "good"), draft(other, 0, "stale"), draft(s, bus.Any, "good too"))
	wantErr(t, "one stale expected sequence of two", err, bus.ErrConflict)
	if after := mustLast(t, b); after != before {
		t.Fatalf("a refused append stored %d events", after-before)
	}
	var many []bus.Draft
	for i := range 300 {
		many = append(many, draft(s, 0, fmt.Sprint(i)))
	}
	seqs := mustAppend(t, b, many...)
	for i, r := range collect(t, b, seqs[0], seqs[299], s) {
		if r.Seq != seqs[i] || reason(t, r) != fmt.Sprint(i) {
			t.Fatalf("place %d holds %q at %d, want it at %d", i, reason(t, r), r.Seq, seqs[i])
		}
	}
}

// testRace lets conditional commands for the same version of a few aggregates meet in the
// same moment, and so in the same group: exactly one of each wins.
func testRace(t *testing.T, b bus.Bus) {
	const rivals, aggregates, rounds = 8, 6, 5
	subjects := make([]events.Subject, aggregates)
	last := make([]uint64, aggregates)
	for i := range subjects {
		subjects[i] = subject(t)
	}
	start := mustLast(t, b) + 1
	for round := range rounds {
		type result struct {
			aggregate int
			seqs      []uint64
			err       error
		}
		results := make(chan result, rivals*aggregates)
		gate := make(chan struct{})
		var wg sync.WaitGroup
		for i := range aggregates {
			for j := range rivals {
				drafts := []bus.Draft{draft(subjects[i], last[i], fmt.Sprint(round))}
				if j%2 == 1 { // commands of several events must stay whole
					drafts = append(drafts, draft(subjects[i], bus.Any, fmt.Sprint(round)))
				}
				wg.Go(func() {
					<-gate
					seqs, err := b.Log().Append(ctxOf(t), drafts...)
					results <- result{i, seqs, err}
				})
			}
		}
		close(gate)
		wg.Wait()
		close(results)
		won := make([]int, aggregates)
		for r := range results {
			switch {
			case r.err == nil:
				won[r.aggregate]++
				last[r.aggregate] = r.seqs[len(r.seqs)-1]
			case !errors.Is(r.err, bus.ErrConflict):
				t.Fatalf("a loser heard %v, want a conflict", r.err)
			}
		}
		for i, n := range won {
			if n != 1 {
				t.Fatalf("round %d, aggregate %d: %d of %d rivals won", round, i, n, rivals)
			}
		}
	}
	for i, s := range subjects {
		got := collect(t, b, start, mustLast(t, b), s)
		if got[len(got)-1].Seq != last[i] {
			t.Fatalf("aggregate %d ends at %d, its winner heard %d", i, got[len(got)-1].Seq, last[i])
		}
		seen := map[string]int{}
		for _, r := range got {
			seen[reason(t, r)]++
		}
		for round := range rounds {
			if n := seen[fmt.Sprint(round)]; n < 1 || n > 2 {
				t.Fatalf("aggregate %d has %d events of round %d", i, n, round)
			}
		}
	}
}

func testResend(t *testing.T, b bus.Bus) {
	named := func(s events.Subject, expect uint64, id string) bus.Draft {
		d := draft(s, expect, id)
		d.Header.ID = id
		return d
	}
	for _, tc := range []struct {
		name        string
		n           int
		conditional bool
	}{{"one", 1, false}, {"one conditional", 1, true}, {"three", 3, false}, {"three conditional", 3, true}} {
		t.Run(tc.name, func(t *testing.T) {
			s := subject(t)
			expect := uint64(bus.Any)
			if tc.conditional {
				expect = mustAppend(t, b, draft(s, 0, "first"))[0]
			}
			var drafts []bus.Draft
			for range tc.n {
				drafts = append(drafts, named(s, expect, unique()))
			}
			first := mustAppend(t, b, drafts...)
			mustAppend(t, b, draft(s, bus.Any, "somebody wrote behind it"))
			before := mustLast(t, b)
			if again := mustAppend(t, b, drafts...); !slices.Equal(first, again) {
				t.Fatalf("sent again: sequences %v, the first time %v", again, first)
			}
			if after := mustLast(t, b); after != before {
				t.Fatalf("sent again: %d events more", after-before)
			}
		})
	}
	t.Run("another conditional command under a stored version", func(t *testing.T) {
		s := subject(t)
		mustAppend(t, b, named(s, 0, unique()))
		_, err := b.Log().Append(ctxOf(t), named(s, 0, unique()))
		wantErr(t, "Append", err, bus.ErrConflict)
	})
	t.Run("with one event more", func(t *testing.T) {
		s := subject(t)
		d := named(s, bus.Any, unique())
		mustAppend(t, b, d)
		before := mustLast(t, b)
		_, err := b.Log().Append(ctxOf(t), d, named(s, bus.Any, unique()))
		wantErr(t, "Append", err, events.ErrInvalid)
		wantErr(t, "Append", err, bus.ErrRepeated)
		if after := mustLast(t, b); after != before {
			t.Fatalf("%d events were stored", after-before)
		}
	})
}

func testFollow(t *testing.T, b bus.Bus) {
	s := subject(t)
	from := mustLast(t, b) + 1
	const n, later = 20, 200
	for i := range n {
		mustAppend(t, b, draft(s, bus.Any, fmt.Sprint(i)))
	}
	ctx, cancel := context.WithCancel(ctxOf(t))
	defer cancel()
	halfway := make(chan struct{})
	var got []events.Recorded
	errc := make(chan error, 1)
	go func() {
		errc <- b.Log().Follow(ctx, from, from+n+later-1, func(r events.Recorded) error {
			got = append(got, r)
			if len(got) == n {
				close(halfway)
			}
			return nil
		})
	}()
	select {
	case <-halfway:
	case err := <-errc:
		t.Fatalf("Follow ended after %d events: %v", len(got), err)
	}
	var wg sync.WaitGroup
	for i := range later {
		wg.Go(func() {
			if _, err := b.Log().Append(ctx, draft(s, bus.Any, fmt.Sprint(n+i))); err != nil {
				t.Errorf("Append: %v", err)
			}
		})
	}
	wg.Wait()
	if err := <-errc; err != nil {
		t.Fatalf("Follow: %v", err)
	}
	for i, r := range got {
		if r.Seq != from+uint64(i) {
			t.Fatalf("place %d holds sequence %d, want %d", i, r.Seq, from+uint64(i))
		}
	}
	again := collect(t, b, from+5, from+n+later-1, s)
	if len(again) != n+later-5 {
		t.Fatalf("a second follower from %d got %d events, want %d", from+5, len(again), n+later-5)
	}
	for i, r := range again {
		want := got[i+5]
		if r.Seq != want.Seq || !r.Time.Equal(want.Time) || r.Header != want.Header || !bytes.Equal(r.Data, want.Data) || !proto.Equal(r.Event, want.Event) {
			t.Fatalf("replay differs at %d:\n%+v\n%+v", r.Seq, r, want)
		}
	}
}

func testFollowEnds(t *testing.T, b bus.Bus) {
	seqs := mustAppend(t, b, draft(subject(t), bus.Any, "a"), draft(subject(t), bus.Any, "b"), draft(subject(t), bus.Any, "c"))
	own := fmt.Errorf("mine: %w", bus.ErrUnavailable) // even a retryable one is the caller's
	n := 0
	err := b.Log().Follow(ctxOf(t), seqs[0], 0, func(events.Recorded) error { n++; return own })
	if !errors.Is(err, own) || n != 1 {
		t.Fatalf("Follow = %v after %d events, want the handler's own error after one", err, n)
	}
	ctx, cancel := context.WithCancel(ctxOf(t))
	err = b.Log().Follow(ctx, seqs[2], 0, func(events.Recorded) error { cancel(); return nil })
	wantErr(t, "Follow under a cancelled ctx", err, context.Canceled)
	err = b.Log().Follow(ctxOf(t), seqs[2], seqs[0], func(events.Recorded) error { t.Error("an event behind until"); return nil })
	if err != nil {
		t.Fatalf("Follow behind until: %v", err)
	}
}

func testEnvelope(t *testing.T, b bus.Bus) {
	want := events.Header{
		ID: unique(), Type: "unloadAccepted", Source: "portal", Correlation: "c1", Causation: "c0",
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Asked:       events.Asked{By: "operator", Key: "UABC", From: "laptop"},
	}
	d := draft(subject(t), bus.Any, "x")
	d.Header = want
	d.Header.Type = "whatever the caller says"
	seq := mustAppend(t, b, d)[0]
	r, err := b.Log().Get(ctxOf(t), seq)
	if err != nil || r.Header != want || r.Binary || string(r.Data) != `{"unloadAccepted":{"reason":"x"}}` {
		t.Fatalf("Get = %+v (%s), %v\nwant the header %+v", r, r.Data, err, want)
	}
	if age := time.Since(r.Time); age < -time.Minute || age > time.Minute {
		t.Fatalf("time %v is %v away", r.Time, age)
	}
	unnamed := mustAppend(t, b, draft(subject(t), bus.Any, "y"), draft(subject(t), bus.Any, "y"))
	one, err := b.Log().Get(ctxOf(t), unnamed[0])
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.Log().Get(ctxOf(t), unnamed[1])
	if err != nil || one.Header.ID == "" || one.Header.ID == two.Header.ID {
		t.Fatalf("drawn ids %q and %q, %v", one.Header.ID, two.Header.ID, err)
	}
}

func testSeqAt(t *testing.T, b bus.Bus) {
	at, err := b.Log().SeqAt(ctxOf(t), time.Unix(0, 0))
	first := uint64(1)
	if trim, ok := b.Log().(bus.Trimmer); ok && err == nil {
		first, _, err = trim.Span(ctxOf(t))
	}
	if err != nil || at != first-1 {
		t.Fatalf("SeqAt(1970) = %d, %v, want what comes before %d", at, err, first)
	}
	seqs := mustAppend(t, b, draft(subject(t), bus.Any, "a"))
	r, err := b.Log().Get(ctxOf(t), seqs[0])
	if err != nil {
		t.Fatal(err)
	}
	if at, err = b.Log().SeqAt(ctxOf(t), r.Time); err != nil || at < seqs[0] {
		t.Fatalf("SeqAt its own time = %d, %v, want at least %d", at, err, seqs[0])
	}
	if at, err = b.Log().SeqAt(ctxOf(t), r.Time.Add(-1)); err != nil || at >= seqs[0] {
		t.Fatalf("SeqAt just before = %d, %v, want less than %d", at, err, seqs[0])
	}
	last := mustLast(t, b)
	if at, err = b.Log().SeqAt(ctxOf(t), time.Now().Add(time.Hour)); err != nil || at < last {
		t.Fatalf("SeqAt in an hour = %d, %v, want at least %d", at, err, last)
	}
}
