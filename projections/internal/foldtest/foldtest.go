// Package foldtest checks a fold against a log in a file and the state it must give.
//
// A log is one JSON object per line: {"subject", "time", "body"}, with "raw" instead of
// body for bytes that are no JSON, and "seq" where it is not the line before plus one.
// The state is the fold's indented JSON; with UPDATE=1 in the environment it is written
// instead of compared, and the change is reviewed like code.
package foldtest

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
)

// ReadLog decodes the log the way a bus does.
func ReadLog(t testing.TB, path string) []events.Recorded {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var log []events.Recorded
	for i, line := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		var in struct {
			Seq     uint64
			Subject events.Subject
			Time    time.Time
			Body    json.RawMessage
			Raw     string
		}
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&in); err != nil {
			t.Fatalf("%s:%d: %v", path, i+1, err)
		}
		r := events.Recorded{Seq: in.Seq, Subject: in.Subject, Time: in.Time, Data: in.Body}
		if in.Raw != "" {
			r.Data = []byte(in.Raw)
		}
		if r.Seq == 0 {
			r.Seq = 1
			if i > 0 {
				r.Seq = log[i-1].Seq + 1
			}
		}
		if r.Event, r.Err = catalog.Decode(r.Subject, false, r.Data); r.Err != nil {
			r.Event = nil
		}
		log = append(log, r)
	}
	return log
}

// Replay folds the log once for every place where a follower can stop, restore its
// snapshot and be handed what it already knows, and compares each end with wantPath.
func Replay[S any](t *testing.T, logPath, wantPath string, v follow.View[S]) {
	t.Helper()
	log := ReadLog(t, logPath)
	want := golden(t, wantPath, fold(v, v.New(), log))
	hash := ""
	for cut := range len(log) + 1 {
		s := restore(t, v, fold(v, v.New(), log[:cut]))
		s = fold(v, s, log[:cut]) // all of it once more
		s = fold(v, s, log[cut:])
		s = fold(v, s, log[cut:]) // and late
		if diff := cmp.Diff(want, indented(t, s)); diff != "" {
			t.Fatalf("cut at %d (-want +got):\n%s", cut, diff)
		}
		b, err := follow.Canonical(s)
		if err != nil {
			t.Fatal(err)
		}
		h := follow.HashBytes(b)
		if hash == "" {
			hash = h
		}
		if h != hash {
			t.Fatalf("cut at %d: hash %s, want %s", cut, h, hash)
		}
	}
}

func fold[S any](v follow.View[S], s S, log []events.Recorded) S {
	for _, r := range log {
		s = v.Fold(s, r)
	}
	return s
}

func restore[S any](t *testing.T, v follow.View[S], s S) S {
	t.Helper()
	data, err := follow.Canonical(s)
	if err != nil {
		t.Fatal(err)
	}
	back := v.New()
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

func indented[S any](t *testing.T, s S) string {
	t.Helper()
	data, err := follow.Canonical(s)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		t.Fatal(err)
	}
	return b.String() + "\n"
}

func golden[S any](t *testing.T, path string, s S) string {
	t.Helper()
	if os.Getenv("UPDATE") == "1" {
		if err := os.WriteFile(path, []byte(indented(t, s)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
