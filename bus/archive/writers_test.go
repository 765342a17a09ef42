package archive_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
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

// Whoever follows without an end gets the archived part, the rest, and what comes then.
func TestFollowingWithoutAnEnd(t *testing.T) {
	const n = 60
	b, dir := story(t, n), t.TempDir()
	want := read(t, b.Log(), 1, n)
	for _, archived := range []uint64{1, 30, n} {
		log := write(t, filepath.Join(dir, fmt.Sprint(archived)), b.Log(), archived, archive.WriterOptions{}).Log(b.Log())
		for _, from := range []uint64{0, 1, archived, archived + 1} {
			if from > n {
				continue
			}
			var got []events.Recorded
			enough := errors.New("enough")
			if err := log.Follow(soon(t), from, 0, func(r events.Recorded) error {
				if got = append(got, r); r.Seq == n {
					return enough
				}
				return nil
			}); !errors.Is(err, enough) {
				t.Fatalf("%d archived, from %d: %v after %d events", archived, from, err, len(got))
			}
			same(t, got, want[max(from, 1)-1:])
		}
	}
}

// Segments end with as many events or bytes as are asked for, and at once.
func TestWhereSegmentsEnd(t *testing.T) {
	const n = 7
	b := story(t, n)
	for name, tc := range map[string]struct {
		o    archive.WriterOptions
		want []uint64 // the last of each
	}{
		"by default":              {archive.WriterOptions{}, []uint64{7}},
		"of three events":         {archive.WriterOptions{Events: 3}, []uint64{3, 6, 7}},
		"of seven events":         {archive.WriterOptions{Events: 7}, []uint64{7}},
		"of one event":            {archive.WriterOptions{Events: 1}, []uint64{1, 2, 3, 4, 5, 6, 7}},
		"of a head's bytes":       {archive.WriterOptions{Bytes: 8}, []uint64{1, 2, 3, 4, 5, 6, 7}}, // blocks come later
		"of a byte more than one": {archive.WriterOptions{Bytes: 9}, []uint64{7}},
	} {
		var got []uint64
		for _, s := range write(t, t.TempDir(), b.Log(), n, tc.o).Segments() {
			got = append(got, s.Last)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("segments %s end at %v, want %v", name, got, tc.want)
		}
	}
}

// A log may be trimmed as far as segments that are whole hold it, and no farther.
func TestHowFarALogMayBeTrimmed(t *testing.T) {
	const n = 30
	b, dir := story(t, n), t.TempDir()
	empty, err := archive.Open(filepath.Join(dir, "none"))
	if err != nil {
		t.Fatal(err)
	}
	if upTo, err := empty.Covered(soon(t), b.Log(), 5); upTo != 1 || err != nil {
		t.Errorf("of what is not archived: %d, %v", upTo, err)
	}
	a := write(t, dir, b.Log(), 20, archive.WriterOptions{Events: 10})
	for before, want := range map[uint64]uint64{1: 1, 2: 2, 10: 10, 11: 11, 12: 12, 20: 20, 21: 21, 22: 21, n: 21} {
		if upTo, err := a.Covered(soon(t), b.Log(), before); upTo != want || err != nil {
			t.Errorf("before %d: %d, %v, want %d", before, upTo, err, want)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	whole, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	whole[100] ^= 1
	if err := os.WriteFile(files[1], whole, 0o600); err != nil {
		t.Fatal(err)
	}
	for before, damaged := range map[uint64]bool{5: false, 10: false, 11: false, 12: true, 21: true, n: true} {
		if upTo, err := a.Covered(soon(t), b.Log(), before); errors.Is(err, archive.ErrDamaged) != damaged || !damaged && upTo != before {
			t.Errorf("before %d, with damage behind 10: %d, %v", before, upTo, err)
		}
	}
}

// Where the archive's beginning was taken away, a log that still has it is read instead.
func TestALogThatHasWhatTheArchiveLacks(t *testing.T) {
	const n = 30
	b, dir := story(t, n), t.TempDir()
	want := read(t, b.Log(), 1, n)
	write(t, dir, b.Log(), 20, archive.WriterOptions{Events: 10})
	files, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	a, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	log := a.Log(b.Log())
	same(t, read(t, log, 1, n), want)
	for from, want := range map[uint64]uint64{1: 1, 10: 10, 11: 21, 20: 21, 21: 21} {
		next, err := log.(interface {
			Replay(ctx context.Context, from, until uint64, contexts []string, handle func(events.Recorded) error) (uint64, error)
		}).Replay(soon(t), from, 0, nil, func(events.Recorded) error { return nil })
		if next != want || err != nil {
			t.Errorf("a replay from %d goes on from %d, %v, want %d", from, next, err, want)
		}
	}
}

// Of a log that is trimmed as far as it is archived, what stood at the cut tells which log
// it is; of one that is trimmed farther nobody knows.
func TestATrimmedLogIsTheOneThatWasArchived(t *testing.T) {
	own, other, dir := story(t, 40), story(t, 40), t.TempDir()
	a := write(t, dir, own.Log(), 20, archive.WriterOptions{})
	trim := func(b *mem.Bus, before uint64) bus.Log {
		t.Helper()
		if err := b.Log().(bus.Trimmer).Trim(soon(t), before); err != nil {
			t.Fatal(err)
		}
		return b.Log()
	}
	if err := a.Check(soon(t), trim(own, 21)); err != nil {
		t.Errorf("its own log, trimmed behind it: %v", err)
	}
	if err := a.Check(soon(t), trim(other, 21)); err == nil || !strings.Contains(err.Error(), "another event at sequence 20") {
		t.Errorf("another log, trimmed where it ends: %v", err)
	}
	if err := a.Check(soon(t), trim(other, 31)); err != nil {
		t.Errorf("a log of which nobody knows: %v", err)
	}
}

// What can be read begins with the archive where that reaches the log, and else with the log.
func TestSpanOfLogAndArchive(t *testing.T) {
	const n = 30
	for name, tc := range map[string]struct {
		archived uint64 // up to here; 0: nothing
		lost     bool   // the archive's first ten are gone
		trimmed  uint64 // the log begins here; 0: it was not trimmed
		first    uint64
	}{
		"no archive":                    {0, false, 0, 1},
		"no archive of a trimmed log":   {0, false, 15, 15},
		"a whole log":                   {20, false, 0, 1},
		"both":                          {20, false, 15, 1},
		"up to the archive's end":       {20, false, 21, 1},
		"farther than it was archived":  {20, false, 22, 22},
		"a part of it is gone":          {20, true, 15, 11},
		"the log reaches back farther":  {20, true, 5, 5},
		"as far as the archive":         {20, true, 12, 11},
		"as far as the archive, nearly": {20, true, 11, 11},
	} {
		b, dir := story(t, n), t.TempDir()
		if tc.archived > 0 {
			write(t, dir, b.Log(), tc.archived, archive.WriterOptions{Events: 10})
		}
		if tc.lost {
			files, err := filepath.Glob(filepath.Join(dir, "*.seg"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(files[0]); err != nil {
				t.Fatal(err)
			}
		}
		if tc.trimmed > 0 {
			if err := b.Log().(bus.Trimmer).Trim(soon(t), tc.trimmed); err != nil {
				t.Fatal(err)
			}
		}
		a, err := archive.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		first, last, err := a.Log(b.Log()).(interface {
			Span(context.Context) (first, last uint64, err error)
		}).Span(soon(t))
		if first != tc.first || last != n || err != nil {
			t.Errorf("%s: %d to %d, %v, want %d to %d", name, first, last, err, tc.first, n)
		}
	}
}

// breaking is a log with a gap, which ends the writer's context in front of it.
type breaking struct {
	bus.Log
	cancel context.CancelFunc
}

func (l breaking) Follow(ctx context.Context, from, _ uint64, handle func(events.Recorded) error) error {
	r, err := l.Get(ctx, from)
	if err != nil {
		return err
	}
	if err := handle(r); err != nil {
		return err
	}
	l.cancel()
	r.Seq += 2
	return handle(r)
}

// A writer that is told to stop says what went wrong before.
func TestAStopHidesNothing(t *testing.T) {
	a, err := archive.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	if err := a.Write(ctx, breaking{story(t, 5).Log(), cancel}, 0, archive.WriterOptions{}); err == nil || !strings.Contains(err.Error(), "the log has a gap") {
		t.Errorf("Write = %v", err)
	}
}

// failing is a log that gives one event and fails.
type failing struct {
	bus.Log
	err error
}

func (l failing) Follow(ctx context.Context, from, _ uint64, handle func(events.Recorded) error) error {
	r, err := l.Get(ctx, from)
	if err != nil {
		return err
	}
	if err := handle(r); err != nil {
		return err
	}
	return l.err
}

// What a log fails with ends the writer, once what it gave is sealed.
func TestALogThatFails(t *testing.T) {
	for _, failure := range []error{bus.ErrTrimmed, bus.ErrUnavailable, errors.New("broken")} {
		a, err := archive.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		err = a.Write(soon(t), failing{story(t, 5).Log(), failure}, 0, archive.WriterOptions{})
		if !errors.Is(err, failure) || strings.Contains(err.Error(), "go on in the archive") != (failure == bus.ErrTrimmed) {
			t.Errorf("%v: Write = %v", failure, err)
		}
		if first, last := a.Span(); first != 1 || last != 1 {
			t.Errorf("%v: %d to %d are archived, want the one that came", failure, first, last)
		}
	}
}

// A time leads to the last event of then or before, however much of it the log has
// forgotten, and where many events are of one moment, too.
func TestTimesOfATrimmedLog(t *testing.T) {
	b := mem.New()
	defer b.Close()
	d := bus.Draft{Subject: events.Join("demo", "model", "m"), Expect: bus.Any, Event: &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: "x"}}}}
	for _, n := range []int{1, 3, 1, 4, 2, 1} { // of one moment each
		if _, err := b.Log().Append(soon(t), slices.Repeat([]bus.Draft{d}, n)...); err != nil {
			t.Fatal(err)
		}
	}
	const n, archived = 12, 9
	all := read(t, b.Log(), 1, n)
	for _, per := range []uint64{1, 2, 3, 20} {
		a := write(t, t.TempDir(), b.Log(), archived, archive.WriterOptions{Events: per})
		for first := uint64(1); first <= archived+1; first++ {
			log := a.Log(&gone{Log: b.Log(), first: first})
			ask := func(at time.Time) {
				t.Helper()
				want := uint64(0)
				for _, r := range all {
					if !r.Time.After(at) {
						want = r.Seq
					}
				}
				if got, err := log.SeqAt(soon(t), at); got != want || err != nil {
					t.Errorf("%d events a segment, the log begins at %d: %d, %v, want %d", per, first, got, err, want)
				}
			}
			for _, r := range all {
				ask(r.Time)
				ask(r.Time.Add(-1))
			}
			ask(all[n-1].Time.Add(time.Hour))
		}
	}
}
