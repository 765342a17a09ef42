package archive_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
)

// Two writers of one folder would remove each other's files, or seal segments that overlap.
func TestOneWriterAtATime(t *testing.T) {
	b, dir := story(t, 50), t.TempDir()
	first, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(soon(t))
	seen, done := make(chan struct{}), make(chan error, 1)
	log := &counting{Log: b.Log(), after: 50, then: func() { close(seen) }}
	go func() { done <- first.Write(ctx, log, 0, archive.WriterOptions{}) }()
	<-seen
	second, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Write(soon(t), b.Log(), 50, archive.WriterOptions{}); err == nil || !strings.Contains(err.Error(), "another process writes") {
		t.Errorf("a second writer: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// It goes on behind what the first one has sealed meanwhile.
	if err := second.Write(soon(t), b.Log(), 50, archive.WriterOptions{}); err != nil {
		t.Fatal(err)
	}
	if n, err := second.Verify(); n != 50 || err != nil {
		t.Errorf("%d events, %v", n, err)
	}
}

// What this build does not know of a newer build's fact is not dropped: the archive holds the
// fact as it was written, for the views of that build.
func TestFieldsOfNewerBuildsAreKept(t *testing.T) {
	b := mem.New()
	defer b.Close()
	for _, body := range []string{`{"unloadAccepted":{"reason":"r"}}`, `{"unloadAccepted":{"reason":"r","newField":"by a newer build"}}`} {
		if _, err := b.Publish(t.Context(), string(events.Join("b", "model", "m")), nil, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	want := read(t, b.Log(), 1, 2)
	a := write(t, t.TempDir(), b.Log(), 2, archive.WriterOptions{})
	same(t, read(t, a.Log(b.Log()), 1, 2), want)
	var kept []string
	if _, err := a.Replay(soon(t), 1, 0, nil, func(r events.Recorded) error {
		if !proto.Equal(r.Event, want[r.Seq-1].Event) || r.Err != nil {
			t.Errorf("event %d became %v, %v", r.Seq, r.Event, r.Err)
		}
		kept = append(kept, string(r.Data))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(kept) != 2 || kept[0] != "" || !strings.Contains(kept[1], "newField") {
		t.Errorf("a replay reads %q: the fact of the newer build must be decoded from its original", kept)
	}
	if _, err := a.Verify(); err != nil {
		t.Error(err)
	}
}
