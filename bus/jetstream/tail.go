package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/events"
)

// tailRecords and tailBytes bound what the tail keeps for its slower readers; what all
// have taken goes at once.
const (
	tailRecords = 2048
	tailBytes   = 2 << 20
	tailTake    = 128 // records that a reader takes at a time
)

// tail is the live end of the log, read and decoded once for all who follow it in this
// process: a role folds several views of one log, and each record is sent to it once.
// Whoever is behind what the tail keeps reads by itself until it has caught up, so a slow
// reader holds up nobody.
type tail struct {
	l   logStream
	own own

	mu  sync.Mutex
	now *feed // the one that readers join; nil: nobody reads
}

// feed is one reading of the log's end, for as long as anybody is joined to it.
type feed struct {
	from uint64 // it has what was stored from here on
	stop context.CancelFunc

	mu      sync.Mutex // taken behind the tail's
	readers int
	idle    int               // readers that have taken everything there is
	records []events.Recorded // of rising sequence; the newest are kept
	bytes   int
	behind  uint64        // last sequence that is no longer kept
	more    chan struct{} // closed at the next record and at the end; nil: nobody waits
	err     error         // why it has ended
}

// follow is Follow without an end.
func (t *tail) follow(ctx context.Context, from uint64, handle func(events.Recorded) error) error {
	f, err := t.join(ctx)
	if err != nil {
		return err
	}
	defer t.leave(f)
	next := max(from, 1)
	pass := func(r events.Recorded) error {
		err := handle(r)
		if err == nil {
			next = r.Seq + 1
		}
		return err
	}
	var taken [tailTake]events.Recorded
	for {
		n, behind, more, err := f.take(next, taken[:])
		switch {
		case err != nil: // it may be over for this feed alone
			return t.l.follow(ctx, next, 0, nil, pass)
		case behind >= next:
			if err := t.l.follow(ctx, next, behind, nil, pass); err != nil {
				return err
			}
			next = max(next, behind+1)
		case n == 0:
			select {
			case <-more:
			case <-ctx.Done():
				return ctx.Err()
			}
		default:
			for _, r := range taken[:n] {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err := pass(r); err != nil {
					return err
				}
			}
			clear(taken[:n])
		}
	}
}

// join begins to read the log's end if nobody does.
func (t *tail) join(ctx context.Context) (*feed, error) {
	t.mu.Lock()
	if f := t.now; f != nil && f.enter() {
		t.mu.Unlock()
		return f, nil
	}
	t.mu.Unlock()

	var last uint64
	b := t.l.b
	err := b.conn.Retry(ctx, func(ctx context.Context) (err error) { last, err = t.l.Last(ctx); return err })
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case b.conn.Context().Err() != nil:
		return nil, fmt.Errorf("follow: %w", t.l.b.conn.Over())
	case err != nil:
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.now; f != nil && f.enter() { // somebody was quicker
		return f, nil
	}
	f := &feed{from: last + 1, behind: last, readers: 1}
	run, stop := context.WithCancel(b.conn.Context())
	f.stop = stop
	if !b.conn.Spawn(func() { f.end(t.l.follow(run, f.from, 0, t.own.take, f.add)) }) {
		stop()
		return nil, fmt.Errorf("follow: %w", t.l.b.conn.Over())
	}
	t.now = f
	return f, nil
}

// leave ends a feed that nobody reads.
func (t *tail) leave(f *feed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.exit() > 0 {
		return
	}
	f.stop()
	if t.now == f {
		t.now = nil
		t.own.clear()
	}
}

// expect tells whoever reads the log's end what is about to be stored there.
func (t *tail) expect(drafts []bus.Draft, ready []wire.Ready) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil {
		t.own.keep(drafts, ready)
	}
}

// add is the feed's own handler.
func (f *feed) add(r events.Recorded) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records, f.bytes = append(f.records, r), f.bytes+len(r.Data)
	if len(f.records) > 2*tailRecords || f.bytes > 2*tailBytes {
		f.forget()
	}
	f.wake()
	return nil
}

// forget drops the oldest, all at once, so that this is rare.
func (f *feed) forget() {
	n := len(f.records) - 1 // the newest stays, whatever its size
	size := len(f.records[n].Data)
	for n > 0 && len(f.records)-n < tailRecords && size+len(f.records[n-1].Data) <= tailBytes {
		n--
		size += len(f.records[n].Data)
	}
	if n > 0 {
		f.behind = f.records[n-1].Seq
	}
	f.records, f.bytes = slices.Clone(f.records[n:]), size
}

func (f *feed) wake() {
	f.idle = 0
	if f.more != nil {
		close(f.more)
		f.more = nil
	}
}

func (f *feed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = errors.New("the log's end was read to an end")
	}
	f.err, f.records = err, nil
	f.wake()
}

// enter is false when the feed has ended.
func (f *feed) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.readers++
	}
	return f.err == nil
}

// exit returns how many readers are left.
func (f *feed) exit() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers--
	return f.readers
}

// take copies records from sequence next on into to. If there are none, more says when
// there may be; behind at or after next means that what is kept begins after it.
func (f *feed) take(next uint64, to []events.Recorded) (n int, behind uint64, more <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || f.behind >= next {
		return 0, f.behind, nil, f.err
	}
	i := len(f.records) // most often only the newest are wanted
	for i > 0 && f.records[i-1].Seq >= next {
		i--
	}
	if n = copy(to, f.records[i:]); n > 0 {
		return n, f.behind, nil, nil
	}
	if f.more == nil {
		f.more = make(chan struct{})
	}
	if f.idle++; f.idle >= f.readers && len(f.records) > 0 {
		f.behind = f.records[len(f.records)-1].Seq
		f.records, f.bytes = nil, 0
	}
	return 0, f.behind, f.more, nil
}
