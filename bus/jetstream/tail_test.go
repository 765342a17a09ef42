package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	njs "github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

func appendMany(t testing.TB, log bus.Log, from, n int) {
	t.Helper()
	for n > 0 {
		var drafts []bus.Draft
		for range min(n, 1000) {
			drafts = append(drafts, bus.Draft{Subject: events.Join("t", "model", "m"), Expect: bus.Any, Event: &model.Event{
				Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: &model.Load{ModelName: "m", ModelDir: fmt.Sprintf("/d/%d", from), NumShard: 1, Version: 1}}}}})
			from++
		}
		if _, err := log.Append(t.Context(), drafts...); err != nil {
			t.Fatal(err)
		}
		n -= len(drafts)
	}
}

// Followers of one process share one reading of the log's end. One that stops in between
// for longer than is kept for it holds up nobody and misses nothing, and one that joins
// late, from the first event, sees everything once.
func TestFollowersShareTheTail(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{Server: s})
	const before, live = 100, 6000
	appendMany(t, b.Log(), 0, before)

	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	held := make(chan struct{})
	var all sync.WaitGroup
	started := make(chan struct{}, 3)
	var atEnd atomic.Int32
	follow := func(name string, from uint64, hold bool) {
		enough := errors.New("enough")
		all.Go(func() {
			want := from
			err := b.Log().Follow(ctx, from, 0, func(r events.Recorded) error {
				if r.Seq != want {
					return fmt.Errorf("sequence %d, want %d", r.Seq, want)
				}
				if load := r.Event.(*model.Event).GetLoadAccepted().GetLoad(); load.GetModelDir() != fmt.Sprintf("/d/%d", want-1) {
					return fmt.Errorf("at %d: %s", want, load.GetModelDir())
				}
				if want == before {
					started <- struct{}{}
				}
				if hold && want == before+1 {
					select {
					case <-held:
					case <-ctx.Done():
					}
				}
				if want++; want > before+live {
					atEnd.Add(1)
					return enough
				}
				return nil
			})
			if !errors.Is(err, enough) {
				t.Errorf("%s: at %d: %v", name, want, err)
			}
		})
	}
	follow("one", 1, false)
	follow("slow", 1, true)
	follow("another", before, false)
	for range 3 {
		<-started
	}
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := njs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	readers := func() int {
		info, err := js.Stream(ctx, "MONOLITH")
		if err != nil {
			t.Fatal(err)
		}
		return info.CachedInfo().State.Consumers
	}
	wait.For(t, "one consumer for all three", func() bool { return readers() == 1 })
	appendMany(t, b.Log(), before, live)
	wait.For(t, "the quick ones at the end", func() bool { return atEnd.Load() == 2 })
	follow("late", 1, false)
	<-started
	close(held)
	all.Wait()
	wait.For(t, "no consumer left behind", func() bool { return readers() == 0 })
}

// Who follows the log when the last one has just left shares a new reading with the others,
// and has none of its own.
func TestFollowersShareTheTailAnew(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{Server: s})
	_, js := raw(t, s)
	appendMany(t, b.Log(), 0, 1)
	enough := errors.New("enough")
	once := func(events.Recorded) error { return enough }
	for range 5 {
		if err := b.Log().Follow(t.Context(), 1, 0, once); !errors.Is(err, enough) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	seen := make(chan struct{}, 2)
	for range 2 {
		all.Go(func() {
			if err := b.Log().Follow(ctx, 1, 0, func(events.Recorded) error { seen <- struct{}{}; return nil }); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	<-seen
	<-seen
	wait.For(t, "one consumer for both", func() bool {
		info, err := js.Stream(ctx, "MONOLITH")
		if err != nil {
			t.Fatal(err)
		}
		return info.CachedInfo().State.Consumers == 1
	})
}

// A binary event comes back to this process's followers as the message that was appended,
// with place and time of the log; another process decodes the same.
func TestTailKnowsOwnEvents(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	here, there := connect(t, jetstream.Config{Server: s}), connect(t, jetstream.Config{Server: s})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	enough := errors.New("enough")
	follow := func(b bus.Bus) <-chan events.Recorded {
		got := make(chan events.Recorded, 8)
		go func() {
			defer close(got)
			if err := b.Log().Follow(ctx, 1, 0, func(r events.Recorded) error {
				if got <- r; r.Seq == 4 {
					return enough
				}
				return nil
			}); !errors.Is(err, enough) {
				t.Error(err)
			}
		}()
		return got
	}
	mine, theirs := follow(here), follow(there)
	appendMany(t, here.Log(), 0, 1)
	if a, b := <-mine, <-theirs; a.Seq != 1 || b.Seq != 1 { // both stand at the end now
		t.Fatal(a, b)
	}
	for seq := uint64(2); seq <= 4; seq++ {
		e := &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Session: int64(seq), Ops: []*znode.Op{
			{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: "/a", Data: []byte{}, Version: -1}}}}}}}
		d := bus.Draft{Subject: events.Join("t", "znode", znode.Aggregate), Event: e, Expect: bus.Any, Binary: seq < 4}
		if _, err := here.Log().Append(ctx, d); err != nil {
			t.Fatal(err)
		}
		a, b := <-mine, <-theirs
		if a.Seq != seq || b.Seq != seq || !a.Time.Equal(b.Time) || a.Time.IsZero() || a.Header != b.Header {
			t.Errorf("%+v here, %+v there", a, b)
		}
		if !proto.Equal(a.Event, e) || !proto.Equal(b.Event, e) {
			t.Errorf("%v here, %v there, appended was %v", a.Event, b.Event, e)
		}
		if own := a.Event == proto.Message(e); own != d.Binary {
			t.Errorf("sequence %d: the appended message itself: %v, want %v", seq, own, d.Binary)
		}
	}
}
