package bustest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

func testDeltas(t *testing.T, b bus.Bus) {
	d := b.Deltas()
	s := bus.DeltaSubject("bustest", unique(), "0")
	first := bus.DeltaDraft{Subject: s, ID: unique(), Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Data: []byte{0, 1, 2}}
	seq, err := d.Publish(ctxOf(t), first)
	if err != nil {
		t.Fatalf("Publish: %v", err)
	}
	got, err := d.Get(ctxOf(t), seq)
	if err != nil || got.Seq != seq || got.Subject != s || got.Traceparent != first.Traceparent || !bytes.Equal(got.Data, first.Data) {
		t.Fatalf("Get = %+v, %v", got, err)
	}
	if again, err := d.Publish(ctxOf(t), first); err != nil || again != seq {
		t.Fatalf("the same again = %d, %v, want %d", again, err, seq)
	}
	_, err = d.Publish(ctxOf(t), bus.DeltaDraft{Subject: s, Data: []byte("stale")})
	wantErr(t, "a fenced writer", err, bus.ErrConflict)
	chunks := []bus.DeltaDraft{{Subject: s, Expect: seq, Data: []byte("a")}, {Subject: s, Data: []byte("b")}, {Subject: s, Data: []byte("c")}}
	last, err := d.Publish(ctxOf(t), chunks...)
	if err != nil {
		t.Fatalf("Publish of chunks: %v", err)
	}
	if of, err := d.LastOf(ctxOf(t), s); err != nil || of != last {
		t.Fatalf("LastOf = %d, %v, want %d", of, err, last)
	}
	if of, err := d.Last(ctxOf(t)); err != nil || of < last {
		t.Fatalf("Last = %d, %v, want at least %d", of, err, last)
	}
	for i, want := range []string{"a", "b", "c"} {
		got, err := d.Get(ctxOf(t), last-2+uint64(i))
		if err != nil || string(got.Data) != want {
			t.Fatalf("chunk %d = %q, %v", i, got.Data, err)
		}
	}
	_, err = d.Get(ctxOf(t), last+1000)
	wantErr(t, "Get behind the end", err, bus.ErrNotFound)
	_, err = d.Publish(ctxOf(t), bus.DeltaDraft{Subject: s, Expect: bus.Any, Data: make([]byte, 2<<20)})
	wantErr(t, "Publish of 2 MiB", err, bus.ErrTooLarge)
	_, err = d.Publish(ctxOf(t), bus.DeltaDraft{Subject: "elsewhere.x", Expect: bus.Any})
	wantErr(t, "Publish elsewhere", err, events.ErrInvalid)
	_, err = d.Publish(ctxOf(t), bus.DeltaDraft{Subject: s, Expect: bus.Any}, bus.DeltaDraft{Subject: s + ".dense"})
	wantErr(t, "Publish on two subjects", err, events.ErrInvalid)
}

func testDeltasFollow(t *testing.T, b bus.Bus) {
	d := b.Deltas()
	job := unique()
	rows, dense, other := bus.DeltaSubject("bustest", job, "0"), bus.DeltaSubject("bustest", job, "0")+".dense", bus.DeltaSubject("bustest", job, "1")
	put := func(s, data string) uint64 {
		seq, err := d.Publish(ctxOf(t), bus.DeltaDraft{Subject: s, Expect: bus.Any, Data: []byte(data)})
		if err != nil {
			t.Fatalf("Publish: %v", err)
		}
		return seq
	}
	from := put(rows, "r1")
	put(other, "o1")
	put(dense, "d1")
	put(rows, "r2")
	end := put(other, "o2")
	for _, tc := range []struct {
		name     string
		from     uint64
		subjects []string
		want     string
	}{
		{"one", from, []string{rows}, "r1 r2 "},
		{"two", from, []string{rows, dense}, "r1 d1 r2 "},
		{"wildcard", from, []string{"msync.bustest." + job + ".*"}, "r1 o1 r2 o2 "},
		{"all of the job", from, []string{"msync.bustest." + job + ".>"}, "r1 o1 d1 r2 o2 "},
		{"later", from + 1, []string{rows}, "r2 "},
		{"nothing matches", from, []string{"msync.bustest." + unique()}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got string
			err := d.Follow(ctxOf(t), tc.from, end, tc.subjects, func(m bus.StoredDelta) error {
				got += string(m.Data) + " "
				return nil
			})
			if err != nil || got != tc.want {
				t.Fatalf("Follow = %q, %v, want %q", got, err, tc.want)
			}
		})
	}
	t.Run("live", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctxOf(t))
		defer cancel()
		got := make(chan string, 10)
		errc := make(chan error, 1)
		go func() {
			errc <- d.Follow(ctx, end+1, 0, []string{rows}, func(m bus.StoredDelta) error {
				got <- string(m.Data)
				return nil
			})
		}()
		for i := range 5 {
			put(other, "not this one")
			put(rows, fmt.Sprint(i))
			select {
			case data := <-got:
				if data != fmt.Sprint(i) {
					t.Fatalf("got %q, want %d", data, i)
				}
			case err := <-errc:
				t.Fatalf("Follow ended: %v", err)
			}
		}
		cancel()
		wantErr(t, "Follow", <-errc, context.Canceled)
	})
}

// trimmer is what a sync stream does when it is full.
type trimmer interface {
	Trim(ctx context.Context, before uint64) error
}

func testTrimmed(t *testing.T, b bus.Bus) {
	d := b.Deltas()
	trim, ok := d.(trimmer)
	if !ok {
		t.Fatalf("%T has no Trim(ctx, before); the suite needs it to lose messages", d)
	}
	s := bus.DeltaSubject("bustest", unique(), "0")
	var last uint64
	for range 5 {
		var err error
		if last, err = d.Publish(ctxOf(t), bus.DeltaDraft{Subject: s, Expect: bus.Any, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := trim.Trim(ctxOf(t), last-1); err != nil {
		t.Fatalf("Trim: %v", err)
	}
	if got, err := d.First(ctxOf(t)); err != nil || got != last-1 {
		t.Fatalf("First of a trimmed stream = %d, %v, want %d", got, err, last-1)
	}
	n := 0
	count := func(bus.StoredDelta) error { n++; return nil }
	err := d.Follow(ctxOf(t), last-2, last, []string{s}, count)
	if !errors.Is(err, bus.ErrTrimmed) || n != 0 {
		t.Fatalf("Follow behind the oldest = %v after %d deltas", err, n)
	}
	if err := d.Follow(ctxOf(t), last-1, last, []string{s}, count); err != nil || n != 2 {
		t.Fatalf("Follow from the oldest = %v after %d deltas, want 2", err, n)
	}
	if err := trim.Trim(ctxOf(t), last+1); err != nil {
		t.Fatalf("Trim of all: %v", err)
	}
	if got, err := d.Last(ctxOf(t)); err != nil || got != last {
		t.Fatalf("Last of a trimmed stream = %d, %v, want %d", got, err, last)
	}
	if got, err := d.First(ctxOf(t)); err != nil || got != last+1 {
		t.Fatalf("First of an empty stream = %d, %v, want %d", got, err, last+1)
	}
	wantErr(t, "Follow into nothing", d.Follow(ctxOf(t), last, last, []string{s}, count), bus.ErrTrimmed)
	next, err := d.Publish(ctxOf(t), bus.DeltaDraft{Subject: s, Expect: bus.Any, Data: []byte("y")})
	if err != nil || next != last+1 {
		t.Fatalf("Publish = %d, %v, want %d", next, err, last+1)
	}
	n = 0
	if err := d.Follow(ctxOf(t), last+1, next, nil, count); err != nil || n != 1 {
		t.Fatalf("Follow behind a trimmed stream = %v after %d deltas, want 1", err, n)
	}
}
