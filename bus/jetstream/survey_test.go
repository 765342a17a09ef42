package jetstream_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
)

// A survey says how far the clock is off and how exactly that is known, which settings of the
// streams are not as a role makes them, which stream is gone, and who serves in the namespace.
func TestSurvey(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{Server: s})
	if _, err := b.Log().Append(t.Context(), draft("a", "1", bus.Any)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"chief", "job 1/übung"} {
		_, release, err := b.Leases().Acquire(t.Context(), name, "me", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	for bzid, name := range map[string]string{"bustest": "portal", "other": "publisher"} {
		if _, err := b.Commands().Serve(t.Context(), bus.Service{BZID: bzid, Name: name, Version: "1.0.0", Description: bzid,
			Endpoints: map[string]bus.Handler{"who": func(context.Context, []byte) ([]byte, error) { return nil, nil }}}); err != nil {
			t.Fatal(err)
		}
	}
	survey := func() jetstream.Survey {
		t.Helper()
		got, err := b.Survey(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := survey()
	if got.Within <= 0 || got.Skew.Abs() > got.Within { // it is one clock
		t.Errorf("the clock is off by %v, within %v", got.Skew, got.Within)
	}
	if len(got.Services) != 1 || got.Services[0].Name != "portal" || len(got.Leases) != 2 || got.Leases["chief"] != "me" || got.Leases["job 1/übung"] != "me" || got.Version == "" || got.Stored <= 0 {
		t.Errorf("%+v", got)
	}
	for _, st := range got.Streams {
		if st.Missing || len(st.Differs) > 0 || len(st.Behind) > 0 || st.Name == "MONOLITH" && (st.Bytes <= 0 || !st.Refuses) {
			t.Errorf("stream %+v", st)
		}
	}
	_, js := raw(t, s)
	st, err := js.Stream(t.Context(), "MONOLITH")
	if err != nil {
		t.Fatal(err)
	}
	cfg := st.CachedInfo().Config
	cfg.Duplicates /= 2
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "MONOLITH_DLQ"); err != nil {
		t.Fatal(err)
	}
	of := func(name string) jetstream.StreamSurvey {
		streams := survey().Streams
		i := slices.IndexFunc(streams, func(st jetstream.StreamSurvey) bool { return st.Name == name })
		if i < 0 {
			t.Fatalf("no %s among %+v", name, streams)
		}
		return streams[i]
	}
	if st := of("MONOLITH"); len(st.Differs) != 1 || !strings.Contains(st.Differs[0], "duplicate_window is ") {
		t.Errorf("a window of another length: %+v", st)
	}
	if st := of("MONOLITH_DLQ"); !st.Missing {
		t.Errorf("a stream that is gone: %+v", st)
	}
	if _, err := js.Stream(t.Context(), "MONOLITH_DLQ"); err != natsjs.ErrStreamNotFound {
		t.Errorf("a survey has made a stream, %v", err)
	}
}
