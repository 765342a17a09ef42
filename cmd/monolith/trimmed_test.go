package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/jetstream"
)

// Everything comes up again on a folder whose log was trimmed, with or without snapshots, and
// without a word about the archive: it is remembered beside the log.
func TestUpAfterTrim(t *testing.T) {
	dir, archived := t.TempDir(), filepath.Join(t.TempDir(), "archive")
	w := opsStart(t, opsConfig(dir))
	w.halt()

	logs, err := jetstream.StartServer(jetstream.ServerConfig{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		t.Fatal(err)
	}
	conn := connection{nats: logs.URL(), bzid: "demo", level: "error", archive: archived}
	ctx, cancel := context.WithTimeout(t.Context(), opsWithin)
	defer cancel()
	var out, errs bytes.Buffer
	if code := run([]string{"archive", "--dir", archived, "--nats", logs.URL()}, &out, &errs); code != exitOK {
		t.Fatalf("archive: exit %d, %s%s", code, &out, &errs)
	}
	if err := trim(ctx, conn, 0, time.Nanosecond, true, &out); err != nil || !strings.Contains(out.String(), "events were removed") {
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
