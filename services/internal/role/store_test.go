package role

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const subject = events.Subject("monolith.b.model.m")

func draft(expect uint64) bus.Draft {
	return bus.Draft{Subject: subject, Expect: expect, Event: &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{}}}}
}

func nowait(context.Context, uint64) error { return nil }

func TestAppendDecidesAgain(t *testing.T) {
	b := mem.New()
	var waited []uint64
	s := Store{Log: b.Log(), Source: "me", Wait: func(_ context.Context, seq uint64) error { waited = append(waited, seq); return nil }}
	rounds := 0
	drafts, seqs, err := s.Append(t.Context(), func() ([]bus.Draft, error) {
		if rounds++; rounds == 1 { // somebody is faster
			if _, err := b.Log().Append(t.Context(), draft(0)); err != nil {
				t.Fatal(err)
			}
			return []bus.Draft{draft(0)}, nil
		}
		return []bus.Draft{draft(1)}, nil
	})
	if err != nil || rounds != 2 || fmt.Sprint(seqs) != "[2]" || fmt.Sprint(waited) != "[1 2]" {
		t.Fatalf("%v after %d rounds: %v, waited for %v", err, rounds, seqs, waited)
	}
	if h := drafts[0].Header; h.Source != "me" || h.ID == "" {
		t.Errorf("header %+v", h)
	}
	_, seqs, err = s.Append(t.Context(), func() ([]bus.Draft, error) { return nil, nil })
	if err != nil || len(seqs) != 0 {
		t.Errorf("nothing to say: %v, %v", seqs, err)
	}
	refusal := bus.Refuse(bus.CodeInvalid, "no")
	if _, _, err := s.Append(t.Context(), func() ([]bus.Draft, error) { return nil, refusal }); !errors.Is(err, refusal) {
		t.Errorf("refused: %v", err)
	}
}

// A view that passes over an event on the subject would lose for ever by what it expects.
func TestAppendPassesWhatTheViewSkips(t *testing.T) {
	b := mem.New()
	if _, err := b.Publish(t.Context(), string(subject), nil, []byte("junk")); err != nil {
		t.Fatal(err)
	}
	s := Store{Log: b.Log(), Wait: nowait}
	_, seqs, err := s.Append(t.Context(), func() ([]bus.Draft, error) { return []bus.Draft{draft(0)}, nil })
	if err != nil || fmt.Sprint(seqs) != "[2]" {
		t.Fatalf("%v, %v", seqs, err)
	}
}

// scripted answers Append with its errors first.
type scripted struct {
	bus.Log
	errs []error
	ids  []string
}

func (s *scripted) Append(ctx context.Context, drafts ...bus.Draft) ([]uint64, error) {
	s.ids = append(s.ids, drafts[0].Header.ID)
	if len(s.errs) == 0 {
		return s.Log.Append(ctx, drafts...)
	}
	err := s.errs[0]
	s.errs = s.errs[1:]
	return nil, err
}

func TestAppendWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		defer b.Close()
		log := &scripted{Log: b.Log(), errs: []error{bus.ErrUnavailable, fmt.Errorf("x: %w", bus.ErrUnavailable)}}
		decided := 0
		_, seqs, err := Store{Log: log, Wait: nowait}.Append(t.Context(), func() ([]bus.Draft, error) { decided++; return []bus.Draft{draft(0)}, nil })
		if err != nil || len(seqs) != 1 || decided != 1 || len(log.ids) != 3 || log.ids[0] != log.ids[2] {
			t.Errorf("%v, %v: decided %d times, sent %v", seqs, err, decided, log.ids)
		}
		log.errs = []error{bus.ErrFull}
		if _, _, err := (Store{Log: log, Wait: nowait}).Append(t.Context(), func() ([]bus.Draft, error) { return []bus.Draft{draft(1)}, nil }); !errors.Is(err, bus.ErrFull) {
			t.Errorf("full: %v", err)
		}
		never := &scripted{Log: b.Log()}
		for range 10_000 {
			never.errs = append(never.errs, bus.ErrUnavailable)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := (Store{Log: never, Wait: nowait}).Append(ctx, func() ([]bus.Draft, error) { return []bus.Draft{draft(1)}, nil }); !errors.Is(err, bus.ErrUnavailable) {
			t.Errorf("away: %v", err)
		}
		conflicts := &scripted{Log: b.Log()}
		for range attempts {
			conflicts.errs = append(conflicts.errs, bus.ErrConflict)
		}
		if _, _, err := (Store{Log: conflicts, Wait: nowait}).Append(t.Context(), func() ([]bus.Draft, error) { return []bus.Draft{draft(1)}, nil }); !errors.Is(err, bus.ErrConflict) {
			t.Errorf("conflicts without end: %v", err)
		}
	})
}

func TestHandlerCodes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code string
	}{
		{bus.Refuse(bus.CodeNotFound, "x"), bus.CodeNotFound},
		{fmt.Errorf("a: %w", bus.Refuse(bus.CodeInvalid, "x")), bus.CodeInvalid},
		{fmt.Errorf("a: %w", events.ErrInvalid), bus.CodeInvalid},
		{bus.ErrTooLarge, bus.CodeInvalid},
		{bus.ErrConflict, bus.CodeConflict},
		{bus.ErrUnavailable, bus.CodeUnavailable},
		{context.DeadlineExceeded, bus.CodeUnavailable},
		{bus.ErrFull, bus.CodeUnavailable},
		{errors.New("x"), bus.CodeInternal},
	} {
		_, err := Handler(func(context.Context, []byte) ([]byte, error) { return nil, tc.err })(t.Context(), nil)
		var refusal *bus.CommandError
		if !errors.As(err, &refusal) || refusal.Code != tc.code || refusal.Message == "" {
			t.Errorf("%v becomes %v, want %s", tc.err, err, tc.code)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		_, err := Handler(func(ctx context.Context, _ []byte) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() })(t.Context(), nil)
		var refusal *bus.CommandError
		if !errors.As(err, &refusal) || refusal.Code != bus.CodeUnavailable {
			t.Errorf("a handler that hangs: %v", err)
		}
	})
}

type fixed struct{}

func (fixed) Hash() (uint64, string) { return 7, "h" }

func TestStateAndDecode(t *testing.T) {
	state := State(map[string]View{"fleet": fixed{}})
	for payload, want := range map[string]string{``: `{"seq":7,"hash":"h"}`, `{}`: `{"seq":7,"hash":"h"}`, `{"view":"fleet"}`: `{"seq":7,"hash":"h"}`} {
		if got, err := state(t.Context(), []byte(payload)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", payload, got, err)
		}
	}
	for payload, says := range map[string]string{`{"view":"plan"}`: "ask for fleet", `{"veiw":"fleet"}`: "veiw", `{} {}`: "follows", `[`: "send a body like"} {
		if _, err := state(t.Context(), []byte(payload)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want an error that says %q", payload, err, says)
		}
	}
	var c container.Container
	if err := Decode([]byte(`{"grpc_address":"a","httpAddress":"b"}`), &c, "x"); err != nil || c.GetGrpcAddress() != "a" || c.GetHttpAddress() != "b" {
		t.Errorf("both spellings: %v, %v", &c, err)
	}
	if err := Decode(nil, &c, "x"); err != nil {
		t.Errorf("an empty body: %v", err)
	}
	if err := Decode([]byte(`{"id":1}`), &c, `{"id":"a"}`); err == nil || !strings.Contains(err.Error(), `{"id":"a"}`) || strings.Contains(err.Error(), "\u00a0") {
		t.Errorf("a wrong type: %v", err)
	}
}

func TestForeign(t *testing.T) {
	is := foreign("b", "publish", "sync")
	for _, tc := range []struct {
		r    events.Recorded
		want bool
	}{
		{events.Recorded{Subject: "monolith.b.publish.m"}, false},
		{events.Recorded{Subject: "monolith.b.publish.m", Err: events.ErrMalformed}, true},
		{events.Recorded{Subject: "monolith.b.sync.m.request"}, true},
		{events.Recorded{Subject: "monolith.other.sync.m.request"}, false},
		{events.Recorded{Subject: "monolith.b.model.m.request"}, false},
		{events.Recorded{Subject: "junk", Err: events.ErrMalformed}, false},
	} {
		if got := is(tc.r); got != tc.want {
			t.Errorf("%s, %v: %v", tc.r.Subject, tc.r.Err, got)
		}
	}
	if _, err := park("hint")(t.Context(), events.Recorded{Err: events.ErrUnknown}); !errors.Is(err, events.ErrUnknown) {
		t.Error(err)
	}
	if _, err := park("hint")(t.Context(), events.Recorded{}); !errors.Is(err, events.ErrInvalid) || !strings.Contains(err.Error(), "hint") {
		t.Error(err)
	}
}

// What is foreign is parked once, however often the role starts, also behind a log that
// was trimmed and letters that were purged.
func TestParkForeign(t *testing.T) {
	b := mem.New()
	env := services.Env{BZID: "b", Bus: b, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Tracer: noop.NewTracerProvider().Tracer("")}
	junk := func() uint64 {
		t.Helper()
		seq, err := b.Publish(t.Context(), "monolith.b.publish.m", nil, []byte("junk"))
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	letters := func() (all []bus.Parked) {
		t.Helper()
		all, err := b.DeadLetters().List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	run := func(until int) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		errc := make(chan error, 1)
		go func() { errc <- ParkForeign(ctx, env, "me", "hint", "publish") }()
		wait.For(t, fmt.Sprint("letters: ", until), func() bool { return len(letters()) >= until })
		cancel()
		if err := <-errc; err != nil {
			t.Fatalf("ParkForeign: %v", err)
		}
		if got := letters(); len(got) != until {
			t.Fatalf("letters %+v, want %d", got, until)
		}
	}
	junk()
	last := junk()
	run(2)
	if err := b.Log().(bus.Trimmer).Trim(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if _, err := b.DeadLetters().Purge(t.Context(), func(bus.Parked) bool { return true }); err != nil {
		t.Fatal(err)
	}
	junk()
	run(1) // a role that died of the trim, or parked again what was purged, would differ
}
