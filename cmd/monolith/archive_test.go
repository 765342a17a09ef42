package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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

// The whole life of an archive, by its commands: written, checked, the log trimmed behind
// it, everything read on as if nothing had gone.
func TestArchiveAndTrim(t *testing.T) {
	s, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(t.TempDir(), "nats")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn := connect.Config{NATS: s.URL(), BZID: "demo", Level: "error"}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, err := conn.Dial(ctx, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	add := func(name string, expect uint64) uint64 {
		t.Helper()
		seqs, err := b.Log().Append(ctx, bus.Draft{Subject: events.Join("demo", "model", name), Expect: expect,
			Event: &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: &model.Load{ModelName: name, ModelDir: "/m", Version: 1, NumShard: 1, Replicas: 1}}}}})
		if err != nil {
			t.Fatal(err)
		}
		return seqs[0]
	}
	var last, quiet uint64
	for i := range 200 {
		if last = add(fmt.Sprint("m", i), 0); i == 0 {
			quiet = last
		}
	}
	_, want, err := registry.Replay(ctx, b.Log(), "catalog", "", last)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "archive")
	tool := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		code := run(append(args, "--nats", s.URL()), &out, &errs)
		return code, out.String() + errs.String()
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"archive"}, exitUsage, "--dir"},
		{[]string{"archive", "--dir", dir, "--segment-events", "64"}, exitOK, "sequences 1 to 200"},
		{[]string{"archive", "--dir", dir, "--verify"}, exitOK, "in 4 segments"},
		{[]string{"trim", "--before", "5"}, exitUsage, "--archive"},
		{[]string{"trim", "--archive", dir}, exitUsage, "either --before or --keep"},
		{[]string{"trim", "--archive", dir, "--keep", "1m"}, exitUsage, "at least its last 20m"},
		{[]string{"trim", "--archive", dir, "--before", "150", "--yes"}, exitOK, "Nothing to remove"}, // all of it is young
	} {
		if code, out := tool(c.args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit %d, %q; want %d about %q", c.args, code, out, c.code, c.want)
		}
	}
	_, out := tool("archive", "--dir", dir, "--json")
	var report archiving.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Last != last || len(report.Segments) != 4 {
		t.Errorf("%v: %s", err, out)
	}

	behind := add("young", 0) // not archived
	conn.Archive = dir
	var said bytes.Buffer
	if err := archiving.Trim(ctx, conn, 0, time.Nanosecond, false, &said); err != nil || !strings.Contains(said.String(), "200 events would be removed") {
		t.Fatalf("%v: %s", err, &said)
	}
	if err := archiving.Trim(ctx, conn, 0, time.Nanosecond, true, &said); err != nil || !strings.Contains(said.String(), "begins at sequence 201") {
		t.Fatalf("%v: %s", err, &said)
	}
	// The folder is remembered beside the log; where it is not, the error says what to do.
	if code, out := tool("replay", "--view", "catalog", "--hash", "--until", fmt.Sprint(last)); code != exitOK || !strings.Contains(out, want) {
		t.Errorf("with the archive that trim was told: exit %d, %s; want %s", code, out, want)
	}
	elsewhere := dir + "-elsewhere"
	if err := os.Rename(dir, elsewhere); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"replay", "--view", "catalog", "--hash"}, {"events"}} {
		if code, out := tool(args...); code == exitOK || !strings.Contains(out, "no longer in the stream") || !strings.Contains(out, "--archive") || !strings.Contains(out, dir) {
			t.Errorf("%v without the archive: exit %d, %s", args, code, out)
		}
	}
	if code, out := tool("archive", "--dir", filepath.Join(t.TempDir(), "another")); code == exitOK || !strings.Contains(out, "go on in the archive") {
		t.Errorf("a second archive of a trimmed log: exit %d, %s", code, out)
	}
	dir = elsewhere
	if code, out := tool("replay", "--view", "catalog", "--hash", "--until", fmt.Sprint(last), "--archive", dir); code != exitOK || !strings.Contains(out, want) {
		t.Errorf("with the archive: exit %d, %s; want %s", code, out, want)
	}
	if code, out := tool("events", "--archive", dir, "--json"); code != exitOK || strings.Count(out, "\n") != 201 {
		t.Errorf("events: exit %d, %d lines", code, strings.Count(out, "\n"))
	}
	// An expected sequence of a trimmed event still holds.
	if seq := add("m0", quiet); seq != behind+1 {
		t.Errorf("sequence %d after %d", seq, behind)
	}
	if code, out := tool("archive", "--dir", dir); code != exitOK || !strings.Contains(out, fmt.Sprint("sequences 1 to ", behind+1)) {
		t.Errorf("going on: exit %d, %s", code, out)
	}
}
