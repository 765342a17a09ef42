package jetstream_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
)

// Whoever needs events that were trimmed is told what to do about it, and where the archive
// is once that is known.
func TestReadersOfATrimmedLogAreToldOfItsArchive(t *testing.T) {
	b := connect(t, jetstream.Config{Server: startServer(t, t.TempDir(), 0)})
	log := b.Log().(bus.Trimmer)
	if _, err := b.Log().Append(t.Context(), draft("trimmed", "first", bus.Any)); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := b.Log().Append(t.Context(), draft("a", fmt.Sprint(i), bus.Any)); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Trim(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	for aggregate, want := range map[string]uint64{"trimmed": 1, "a": 4, "never": 0} {
		if got, err := b.Log().LastOf(t.Context(), events.Join("crash", "model", aggregate)); err != nil || got != want {
			t.Errorf("the last of %s is %d, %v; want %d", aggregate, got, err, want)
		}
	}
	const where = "/srv/archive"
	for _, known := range []bool{false, true} {
		if known {
			if err := log.KeepIn(t.Context(), where); err != nil {
				t.Fatal(err)
			}
		}
		err := b.Log().Follow(t.Context(), 1, 3, func(events.Recorded) error { return nil })
		if !errors.Is(err, bus.ErrTrimmed) || !strings.Contains(err.Error(), "--archive") || strings.Contains(err.Error(), "trim was told "+where) != known || strings.Contains(err.Error(), "trim was told") != known {
			t.Errorf("a reader is told %v; the archive is known: %t", err, known)
		}
	}
}
