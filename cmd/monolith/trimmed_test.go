package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host/archiving"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/projections/registry"
)

// Everything comes up again on a folder whose log was trimmed, with or without snapshots, and
// without a word about the archive: it is remembered beside the log.
func TestUpAfterTrim(t *testing.T) {
	dir, archived := t.TempDir(), filepath.Join(t.TempDir(), "archive")
	w := opsStart(t, opsConfig(dir))
	w.halt()

	logs, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		t.Fatal(err)
	}
	conn := connect.Config{NATS: logs.URL(), BZID: "demo", Level: "error", Archive: archived}
	ctx, cancel := context.WithTimeout(t.Context(), opsWithin)
	defer cancel()
	var out, errs bytes.Buffer
	if code := run([]string{"archive", "--dir", archived, "--nats", logs.URL()}, &out, &errs); code != exitOK {
		t.Fatalf("archive: exit %d, %s%s", code, &out, &errs)
	}
	if err := archiving.Trim(ctx, conn, 0, time.Nanosecond, true, &out); err != nil || !strings.Contains(out.String(), "events were removed") {
		t.Fatalf("trim: %v: %s", err, &out)
	}
	if err := logs.Close(); err != nil {
		t.Fatal(err)
	}

	for _, snapshots := range []bool{true, false} {
		if !snapshots {
			if err := os.RemoveAll(filepath.Join(dir, "snapshots")); err != nil {
				t.Fatal(err)
			}
		}
		w := opsStart(t, opsConfig(dir)) // it asks the roles, and waits for the model
		w.load()
		w.halt()
	}
}

// A process that has its connection when somebody trims the log reads on as one that
// comes later: an event, the log from its beginning, a past state, a time.
func TestATrimKeepsNobodyFromThePast(t *testing.T) {
	logs, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = logs.Close() })
	conn := connect.Config{NATS: logs.URL(), BZID: "two", Level: "error"}
	ctx, cancel := context.WithTimeout(t.Context(), opsWithin)
	defer cancel()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	b, err := conn.Dial(ctx, "test")
	must("dial", err)
	t.Cleanup(func() { _ = b.Close() })
	for i := range 100 {
		_, err := b.Log().Append(ctx, bus.Draft{Subject: events.Join("two", "model", fmt.Sprint("m", i)), Expect: 0,
			Event: &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: "test"}}}})
		must("append", err)
	}
	first, err := b.Log().Get(ctx, 1)
	must("get", err)
	_, want, err := registry.Replay(ctx, b.Log(), "catalog", "", 50)
	must("replay", err)

	dir := filepath.Join(t.TempDir(), "archive")
	if code, out, errs := opsTool("archive", "--dir", dir, "--nats", logs.URL(), "--bzid", "one"); code != exitOK {
		t.Fatalf("archive: exit %d, %s%s", code, out, errs)
	}
	must("trim", archiving.Trim(ctx, connect.Config{NATS: logs.URL(), BZID: "one", Level: "error", Archive: dir}, 90, time.Nanosecond, true, io.Discard))

	if r, err := b.Log().Get(ctx, 1); err != nil || r.Header.ID != first.Header.ID {
		t.Errorf("event 1 is %q, %v; was %q", r.Header.ID, err, first.Header.ID)
	}
	var seqs []uint64
	must("follow", b.Log().Follow(ctx, 1, 100, func(r events.Recorded) error { seqs = append(seqs, r.Seq); return nil }))
	if len(seqs) != 100 || seqs[0] != 1 || seqs[99] != 100 {
		t.Errorf("followed %d events: %v", len(seqs), seqs)
	}
	if _, hash, err := registry.Replay(ctx, b.Log(), "catalog", "", 50); err != nil || hash != want {
		t.Errorf("the state at 50 is %s, %v; was %s", hash, err, want)
	}
	if seq, err := b.Log().SeqAt(ctx, first.Time); err != nil || seq < 1 || seq > 50 {
		t.Errorf("the time of event 1 is that of %d, %v", seq, err)
	}
	from, to, err := b.Log().(interface {
		Span(context.Context) (uint64, uint64, error)
	}).Span(ctx)
	if err != nil || from != 1 || to != 100 {
		t.Errorf("sequences %d to %d can be read, %v", from, to, err)
	}
}
