package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/registry"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	t.Cleanup(cancel)
	return ctx
}

// story is a log with everything that may stand in one: facts as JSON and as protobuf,
// what does not decode, what breaks a rule, other namespaces, and full envelopes.
func story(t testing.TB, n int) *mem.Bus {
	t.Helper()
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	ctx := soon(t)
	for i := range n {
		name := fmt.Sprintf("m%d", i%7)
		var err error
		switch i % 9 {
		case 3:
			_, err = b.Publish(ctx, string(events.Join("b", "model", name)), nil, []byte("no json"))
		case 5:
			_, err = b.Publish(ctx, string(events.Join("b", "model", name)), nil, []byte(`{ "unloadAccepted" : {"reason":"spaces are kept"} }`))
		case 6:
			var body []byte
			if body, err = proto.Marshal(&model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: &model.Load{ModelName: name, ModelDir: "/m", Version: int64(i + 1), NumShard: 2, Replicas: 1}}}}); err == nil {
				_, err = b.Publish(ctx, string(events.Join("b", "model", name)), map[string][]string{"content-type": {"application/protobuf"}}, body)
			}
		case 7:
			_, err = b.Publish(ctx, string(events.Join("b", "model", name)), nil, []byte(`{"fromTheFuture":{}}`))
		case 8:
			_, err = b.Log().Append(ctx, bus.Draft{Subject: events.Join("other", "replica", name+"/ps:0/0"), Expect: bus.Any,
				Event: &replica.Event{Body: &replica.Event_Lost{Lost: &replica.Lost{Reason: "gone"}}}})
		default:
			_, err = b.Log().Append(ctx, bus.Draft{Subject: events.Join("b", "model", name), Expect: bus.Any,
				Event:  &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: fmt.Sprint("turn ", i)}}},
				Header: events.Header{ID: fmt.Sprint("id", i), Source: "portal", Correlation: "c", Causation: "d", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Asked: askers[i%len(askers)]}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func read(t testing.TB, log bus.Log, from, until uint64) []events.Recorded {
	t.Helper()
	var all []events.Recorded
	if err := log.Follow(soon(t), from, until, func(r events.Recorded) error { all = append(all, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// same compares records, messages by their meaning and errors by their text.
func same(t *testing.T, got, want []events.Recorded) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		if !proto.Equal(g.Event, w.Event) || fmt.Sprint(g.Err) != fmt.Sprint(w.Err) || !bytes.Equal(g.Data, w.Data) {
			t.Fatalf("record %d: got %v %v %q, want %v %v %q", i, g.Event, g.Err, g.Data, w.Event, w.Err, w.Data)
		}
		for _, kind := range []error{events.ErrMalformed, events.ErrInvalid, events.ErrUnknown} {
			if errors.Is(g.Err, kind) != errors.Is(w.Err, kind) {
				t.Fatalf("record %d: %v became %v", i, w.Err, g.Err)
			}
		}
		g.Event, w.Event, g.Err, w.Err, g.Data, w.Data = nil, nil, nil, nil, nil, nil
		if !reflect.DeepEqual(g, w) {
			t.Fatalf("record %d: got %+v, want %+v", i, g, w)
		}
	}
}

// askers are those of the story, nobody among them.
var askers = []events.Asked{{}, {By: "operator", Key: "UABC", From: "laptop"}, {By: "ann"}, {}, {By: "ann", Key: "UDEF", Proof: "p"}}

func write(t testing.TB, dir string, log bus.Log, until uint64, o archive.WriterOptions) *archive.Archive {
	t.Helper()
	a, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Write(soon(t), log, until, o); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestArchiveHoldsTheLogAsItWas(t *testing.T) {
	const n = 500
	b, dir := story(t, n), t.TempDir()
	want := read(t, b.Log(), 1, n)
	write(t, dir, b.Log(), 300, archive.WriterOptions{Events: 64})
	a := write(t, dir, b.Log(), n-20, archive.WriterOptions{Events: 64}) // goes on where it ended
	if first, last := a.Span(); first != 1 || last != n-20 {
		t.Fatalf("archived %d to %d", first, last)
	}
	if got := len(a.Segments()); got != 5+3 {
		t.Errorf("%d segments", got)
	}
	if seen, err := a.Verify(); seen != n-20 || err != nil {
		t.Errorf("verified %d events: %v", seen, err)
	}
	log := a.Log(b.Log())
	for _, span := range [][2]uint64{{1, n}, {1, 1}, {65, 65}, {63, 130}, {200, n - 20}, {1, n - 19}, {n - 20, n - 19}, {n - 19, n - 19}, {n - 25, n}, {n, n}} {
		same(t, read(t, log, span[0], span[1]), want[span[0]-1:span[1]])
	}
}

// gone is a log whose beginning was trimmed.
type gone struct {
	bus.Log
	first   uint64
	touched atomic.Int64
}

func (g *gone) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	if from < g.first {
		g.touched.Add(1)
		return bus.ErrTrimmed
	}
	return g.Log.Follow(ctx, from, until, handle)
}

func (g *gone) Get(ctx context.Context, seq uint64) (events.Recorded, error) {
	if seq < g.first {
		return events.Recorded{}, bus.ErrNotFound
	}
	return g.Log.Get(ctx, seq)
}

func (g *gone) SeqAt(ctx context.Context, t time.Time) (uint64, error) {
	seq, err := g.Log.SeqAt(ctx, t)
	return max(seq, g.first-1), err
}

func TestTheTrimmedPartIsReadFromTheArchive(t *testing.T) {
	const n = 400
	b, dir := story(t, n), t.TempDir()
	want := read(t, b.Log(), 1, n)
	a := write(t, dir, b.Log(), 350, archive.WriterOptions{Events: 100})
	g := &gone{Log: b.Log(), first: 320}
	log := a.Log(g)
	same(t, read(t, log, 1, n), want)
	for _, seq := range []uint64{1, 100, 101, 319, 320, 399} {
		r, err := log.Get(soon(t), seq)
		if err != nil {
			t.Fatal(err)
		}
		same(t, []events.Recorded{r}, want[seq-1:seq])
		at, err := log.SeqAt(soon(t), want[seq-1].Time)
		if err != nil || at < seq || !want[at-1].Time.Equal(want[seq-1].Time) {
			t.Errorf("at the time of %d: %d, %v", seq, at, err)
		}
	}
	if at, err := log.SeqAt(soon(t), want[0].Time.Add(-time.Hour)); at != 0 || err != nil {
		t.Errorf("before the first: %d, %v", at, err)
	}
	if _, err := log.Get(soon(t), n+1); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("beyond the end: %v", err)
	}
	if n := g.touched.Load(); n != 0 {
		t.Errorf("the trimmed part was asked for %d times", n)
	}
	type replayer interface {
		Replay(ctx context.Context, from, until uint64, contexts []string, handle func(events.Recorded) error) (uint64, error)
	}
	for from, want := range map[uint64]uint64{0: 351, 1: 351, 350: 351, 351: 351, 360: 360} {
		seen := from
		next, err := log.(replayer).Replay(soon(t), from, 0, nil, func(r events.Recorded) error {
			seen = r.Seq + 1
			return nil
		})
		if err != nil || next != want || seen != want {
			t.Errorf("a replay from %d ends at %d, %v, and saw what is before %d; want %d", from, next, err, seen, want)
		}
	}
	// Views come out the same.
	for _, name := range registry.Names() {
		_, direct, err := registry.Replay(soon(t), b.Log(), name, "", n)
		if err != nil {
			t.Fatal(err)
		}
		if _, archived, err := registry.Replay(soon(t), log, name, "", n); err != nil || archived != direct {
			t.Errorf("view %s: %s, %v; want %s", name, archived, err, direct)
		}
	}
}

// What a view does not fold changes nothing but its sequence, decoded or not.
func TestUnwantedContextsMakeNoDifference(t *testing.T) {
	const n = 300
	b, dir := story(t, n), t.TempDir()
	a := write(t, dir, b.Log(), n, archive.WriterOptions{})
	whole, err := follow.Replay(soon(t), b.Log(), registry.Catalog, n)
	if err != nil {
		t.Fatal(err)
	}
	s := registry.Catalog.New()
	next, err := a.Replay(soon(t), 1, 0, []string{"model"}, func(r events.Recorded) error {
		s = registry.Catalog.Fold(s, r)
		return nil
	})
	if err != nil || next != n+1 {
		t.Fatalf("next %d, %v", next, err)
	}
	got, err := follow.Canonical(s)
	want, werr := follow.Canonical(whole)
	if err != nil || werr != nil || !bytes.Equal(got, want) {
		t.Errorf("%s, %v; want %s, %v", got, err, want, werr)
	}
}

func TestWriterStopsCleanlyAndGoesOn(t *testing.T) {
	b, dir := story(t, 50), t.TempDir()
	a, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(soon(t))
	seen := make(chan struct{})
	log := &counting{Log: b.Log(), after: 50, then: func() { close(seen) }}
	done := make(chan error, 1)
	go func() { done <- a.Write(ctx, log, 0, archive.WriterOptions{}) }()
	<-seen
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, last := a.Span(); last < 49 {
		t.Errorf("a clean stop left the archive at %d", last)
	}
	// What a crash leaves is removed by the next writer.
	for _, name := range []string{"unfinished-1.tmp", "unfinished-2.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, b.Log(), 50, archive.WriterOptions{})
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	// An age seals a segment that nothing more arrives for.
	a = write(t, t.TempDir(), b.Log(), 50, archive.WriterOptions{Age: time.Nanosecond})
	if _, last := a.Span(); last != 50 {
		t.Errorf("aged segments end at %d", last)
	}
}

type counting struct {
	bus.Log
	after int
	then  func()
}

func (c *counting) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	return c.Log.Follow(ctx, from, until, func(r events.Recorded) error {
		err := handle(r)
		if c.after--; c.after == 0 {
			c.then()
		}
		return err
	})
}

func TestAnotherLogIsRefused(t *testing.T) {
	b, dir := story(t, 100), t.TempDir()
	a := write(t, dir, b.Log(), 100, archive.WriterOptions{})
	for name, n := range map[string]int{"ends at 30": 30, "another event": 200} {
		other := story(t, n)
		if err := a.Write(soon(t), other.Log(), 0, archive.WriterOptions{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("writing: %v, want %q", err, name)
		}
		err := a.Log(other.Log()).Follow(soon(t), 1, 10, func(events.Recorded) error { return nil })
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("following: %v, want %q", err, name)
		}
	}
}

// away is a log that does not answer for a moment.
type away struct{ bus.Log }

func (away) Get(context.Context, uint64) (events.Recorded, error) {
	return events.Recorded{}, bus.ErrUnavailable
}

// The archive answers for what the log has forgotten, not for a log that does not answer.
func TestGetDuringAnOutage(t *testing.T) {
	b := story(t, 20)
	a := write(t, t.TempDir(), b.Log(), 20, archive.WriterOptions{Events: 10})
	if _, err := a.Log(away{b.Log()}).Get(soon(t), 5); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("Get = %v", err)
	}
}

// Events of one moment may lie on both sides of the archive's end.
func TestSeqAtTheArchivesEnd(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	defer b.Close()
	d := bus.Draft{Subject: events.Join("demo", "model", "m"), Expect: bus.Any, Event: &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: "x"}}}}
	seqs, err := b.Log().Append(soon(t), d, d, d)
	if err != nil {
		t.Fatal(err)
	}
	log := write(t, dir, b.Log(), seqs[1], archive.WriterOptions{Events: 1}).Log(b.Log())
	r, err := log.Get(soon(t), seqs[0])
	if err != nil {
		t.Fatal(err)
	}
	if at, err := log.SeqAt(soon(t), r.Time); err != nil || at != seqs[2] {
		t.Errorf("at the time of three events: %d, %v, want the last of them, %d", at, err, seqs[2])
	}
}

// Every byte of a segment is covered: a flipped bit is an error when the file is
// verified, and never an event that was not there.
func TestDamageIsFound(t *testing.T) {
	const n = 60
	b, dir := story(t, n), t.TempDir()
	want := read(t, b.Log(), 1, n)
	write(t, dir, b.Log(), n, archive.WriterOptions{Events: 30})
	files, _ := filepath.Glob(filepath.Join(dir, "*.seg"))
	whole, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	damage := func(what string, change func([]byte) []byte) {
		t.Helper()
		if err := os.WriteFile(files[1], change(bytes.Clone(whole)), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := archive.Open(dir)
		if err == nil {
			_, err = a.Verify()
		}
		if !errors.Is(err, archive.ErrDamaged) && (err == nil || !strings.Contains(err.Error(), "ends at sequence")) {
			t.Fatalf("%s: %v", what, err)
		}
		if a == nil {
			return
		}
		i := 0
		_ = a.Log(b.Log()).Follow(soon(t), 1, n, func(r events.Recorded) error {
			same(t, []events.Recorded{r}, want[i:i+1])
			i++
			return nil
		})
	}
	for at := 0; at < len(whole); at += 1 + at%7 {
		damage(fmt.Sprint("bit at ", at), func(b []byte) []byte { b[at] ^= 1 << (at % 8); return b })
	}
	for _, at := range []int{0, 7, 8, 100, len(whole) / 2, len(whole) - 1} {
		damage(fmt.Sprint("cut at ", at), func(b []byte) []byte { return b[:at] })
	}
	if err := os.Rename(files[0], files[0]+".elsewhere"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[1], whole, 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Replay(soon(t), 1, 0, nil, func(events.Recorded) error { return nil }); !errors.Is(err, bus.ErrTrimmed) {
		t.Errorf("a beginning that is not there: %v", err)
	}
	if upTo, err := a.Covered(soon(t), b.Log(), n); upTo != 1 || err != nil {
		t.Errorf("a log whose beginning is not archived may be trimmed to %d, %v", upTo, err)
	}
}

// A process that opened the archive long ago reads what another one has added since, also in
// the middle of following a log that is trimmed under it.
func TestSegmentsAddedByOthersAreRead(t *testing.T) {
	const n = 300
	b, dir := story(t, n), t.TempDir()
	want := read(t, b.Log(), 1, n)
	old := write(t, dir, b.Log(), 100, archive.WriterOptions{Events: 100})
	g := &gone{Log: b.Log(), first: 50}
	log := old.Log(g)
	same(t, read(t, log, 1, 90), want[:90])

	write(t, dir, b.Log(), 250, archive.WriterOptions{Events: 100})
	g.first = 240
	same(t, read(t, log, 1, n), want)
	for _, seq := range []uint64{101, 239, 240} {
		r, err := old.Log(g).Get(soon(t), seq)
		if err != nil {
			t.Fatal(err)
		}
		same(t, []events.Recorded{r}, want[seq-1:seq])
	}
	if first, last := old.Span(); first != 1 || last != 250 {
		t.Errorf("it knows of %d to %d", first, last)
	}
	if _, hash, err := registry.Replay(soon(t), log, "catalog", "", n); err != nil || hash == "" {
		t.Errorf("a view: %v", err)
	}
}

// trimming is a log of which everything is archived and then trimmed while it is followed.
type trimming struct {
	bus.Log
	after uint64
	then  func()
}

func (l *trimming) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	if from > l.after {
		return l.Log.Follow(ctx, from, until, handle)
	}
	if err := l.Log.Follow(ctx, from, l.after, handle); err != nil {
		return err
	}
	l.then()
	return bus.ErrTrimmed
}

func TestFollowingGoesOnInTheArchiveWhenTheLogIsTrimmed(t *testing.T) {
	const n = 300
	b, dir := story(t, n), t.TempDir()
	want := read(t, b.Log(), 1, n)
	old := write(t, dir, b.Log(), 100, archive.WriterOptions{Events: 100})
	log := old.Log(&trimming{Log: b.Log(), after: 150, then: func() { write(t, dir, b.Log(), 250, archive.WriterOptions{Events: 100}) }})
	same(t, read(t, log, 1, n), want)
	// What the reader itself fails with is not taken for that.
	failed := fmt.Errorf("mine: %w", bus.ErrTrimmed)
	calls := 0
	if err := log.Follow(soon(t), 1, n, func(r events.Recorded) error {
		if r.Seq == 260 {
			calls++
			return failed
		}
		return nil
	}); err != failed || calls != 1 {
		t.Errorf("Follow = %v after %d calls", err, calls)
	}
}
