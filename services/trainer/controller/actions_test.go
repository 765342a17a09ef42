package controller_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/services/trainer/controller"
)

// asked notes what a job was asked.
type asked struct {
	ids  []string
	last *training.Event
	err  error
}

func (a *asked) request(_ context.Context, id string, e *training.Event) error {
	if a.err == nil {
		a.ids, a.last = append(a.ids, id), e
	}
	return a.err
}

// TestActions: each action file becomes one request and one answer, also one that cannot be read or
// asks for nothing known; a file that could not be carried out stays.
func TestActions(t *testing.T) {
	dir, job := t.TempDir(), new(asked)
	a := controller.Actions{Dir: dir, Every: time.Second, Request: job.request, Log: slog.New(slog.DiscardHandler)}
	action, response := filepath.Join(dir, controller.ActionFile), filepath.Join(dir, controller.ResponseFile)
	for _, tc := range []struct {
		text, want string
		asks       func(*training.Event) bool
	}{
		{"action: TRIGGER_SAVE", "OK", func(e *training.Event) bool { return e.GetCheckpointRequested() != nil }},
		{"action: STOP\n", "OK", func(e *training.Event) bool { return e.GetStopRequested() != nil }},
		{"# a comment\naction: 1", "OK", func(e *training.Event) bool { return e.GetCheckpointRequested() != nil }},
		{"", "the action UNKNOWN is none: write TRIGGER_SAVE or STOP", nil},
		{"action: UNKNOWN", "the action UNKNOWN is none: write TRIGGER_SAVE or STOP", nil},
		{"action: EXPLODE", "the action cannot be read: ", nil},
		{"\xff", "the action cannot be read: ", nil},
		{strings.Repeat("#", 70_000), "the action has more than 65536 bytes", nil},
	} {
		if err := os.WriteFile(action, []byte(tc.text), 0o644); err != nil {
			t.Fatal(err)
		}
		before := len(job.ids)
		if err := a.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(response)
		if err != nil || !strings.HasPrefix(string(got), tc.want) || tc.want == "OK" && string(got) != "OK" {
			t.Errorf("%.40q is answered %q, %v", tc.text, got, err)
		}
		if _, err := os.Stat(action); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%.40q is still there: %v", tc.text, err)
		}
		if n := len(job.ids) - before; tc.asks == nil && n != 0 || tc.asks != nil && (n != 1 || !tc.asks(job.last)) {
			t.Errorf("%.40q led to %d requests, the last %v", tc.text, n, job.last)
		}
	}

	// What could not be published is tried again under the same id, another file has another one.
	if err := os.WriteFile(action, []byte("action: STOP"), 0o644); err != nil {
		t.Fatal(err)
	}
	job.err = errors.New("the bus is away")
	if err := a.Look(t.Context()); !errors.Is(err, job.err) {
		t.Errorf("an action that was not published: %v", err)
	}
	job.err = nil
	text, err := os.ReadFile(action)
	if err != nil {
		t.Fatal("the action is lost:", err)
	}
	info, err := os.Stat(action)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a crash before the file was removed leaves it as it was
		if err := a.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(action, text, 0o644), os.Chtimes(action, time.Time{}, info.ModTime())); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(action, time.Time{}, info.ModTime().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := a.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := len(job.ids)
	if job.ids[n-3] != job.ids[n-2] || job.ids[n-2] == job.ids[n-1] {
		t.Errorf("ids %v: the first two are of one file, the last of another", job.ids[n-3:])
	}
}

func FuzzAction(f *testing.F) {
	f.Add([]byte("action: STOP"))
	f.Add([]byte("action: UNKNOWN action: 7"))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := controller.Action(text)
		if (e == nil) == (err == nil) {
			t.Fatalf("%q: %v, %v", text, e, err)
		}
		if err == nil {
			if err := e.Validate("job"); err != nil {
				t.Fatalf("%q asks for what nobody takes: %v", text, err)
			}
		}
	})
}
