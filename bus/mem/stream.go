package mem

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/events"
)

// message is stored and never changed again.
type message struct {
	seq     uint64
	subject string
	at      time.Time
	header  map[string][]string
	data    []byte
}

// item is a message that is not stored yet.
type item struct {
	subject, id string
	header      map[string][]string
	data        []byte
	expect      uint64
}

// stream is one append-only sequence of messages.
type stream struct {
	closed <-chan struct{}

	mu      sync.Mutex
	msgs    []message         // of sequences first, first+1, ...
	first   uint64            // of what is kept; last+1 when nothing is
	lastOf  map[string]uint64 // by subject; survives trimming, like the ids
	ids     map[string]uint64
	at      time.Time     // of the newest
	cut     message       // last that was trimmed
	archive string        // where the log's archive is
	changed chan struct{} // closed at the next append
}

func newStream(closed <-chan struct{}) *stream {
	return &stream{
		closed: closed, first: 1, lastOf: map[string]uint64{}, ids: map[string]uint64{}, changed: make(chan struct{}),
	}
}

// usable says why a call cannot be made at all.
func (s *stream) usable(ctx context.Context) error { return usable(ctx, s.closed) }

func usable(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-closed:
		return fmt.Errorf("%w: it is closed", bus.ErrUnavailable)
	default:
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", bus.ErrUnavailable, err)
	}
	return nil
}

// append stores all items or none.
func (s *stream) append(ctx context.Context, items []item) ([]uint64, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	seqs := make([]uint64, len(items))
	known := 0
	for i, it := range items {
		if seq, ok := s.ids[it.id]; ok && it.id != "" {
			seqs[i] = seq
			known++
		}
	}
	switch known {
	case 0:
	case len(items):
		return seqs, nil
	default:
		return nil, wire.ErrRepeated
	}
	for _, it := range items {
		if last := s.lastOf[it.subject]; it.expect != bus.Any && it.expect != last {
			return nil, fmt.Errorf("%w: %s is at sequence %d, not %d", bus.ErrConflict, it.subject, last, it.expect)
		}
	}
	if now := time.Now().UTC().Round(0); now.After(s.at) {
		s.at = now // it never runs backwards
	}
	for i, it := range items {
		seq := s.first + uint64(len(s.msgs))
		s.msgs = append(s.msgs, message{seq: seq, subject: it.subject, at: s.at, header: it.header, data: it.data})
		s.lastOf[it.subject] = seq
		if it.id != "" {
			s.ids[it.id] = seq
		}
		seqs[i] = seq
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return seqs, nil
}

// follow hands every message from `from` on to handle until ctx ends, the bus is
// closed, handle fails or everything up to until has been handled.
func (s *stream) follow(ctx context.Context, from, until uint64, handle func(message) error) error {
	next := max(from, 1)
	for {
		if until > 0 && next > until {
			return nil
		}
		s.mu.Lock()
		first, changed := s.first, s.changed
		var batch []message
		if next >= first {
			batch = s.msgs[min(next-first, uint64(len(s.msgs))):]
		}
		s.mu.Unlock()
		if next < first {
			return fmt.Errorf("%w: %d is wanted, %d is the oldest kept", bus.ErrTrimmed, next, first)
		}
		for _, m := range batch {
			if until > 0 && m.seq > until {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := handle(m); err != nil {
				return err
			}
			next = m.seq + 1
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closed:
			return fmt.Errorf("follow: %w: it is closed", bus.ErrUnavailable)
		case <-changed:
		}
	}
}

func (s *stream) oldest(ctx context.Context) (uint64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first, nil
}

func (s *stream) last(ctx context.Context) (uint64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first + uint64(len(s.msgs)) - 1, nil
}

func (s *stream) lastOfSubject(ctx context.Context, subject string) (uint64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastOf[subject], nil
}

func (s *stream) get(ctx context.Context, seq uint64) (message, error) {
	if err := s.usable(ctx); err != nil {
		return message{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if seq < s.first || seq-s.first >= uint64(len(s.msgs)) {
		return message{}, fmt.Errorf("sequence %d: %w", seq, bus.ErrNotFound)
	}
	return s.msgs[seq-s.first], nil
}

func (s *stream) seqAt(ctx context.Context, t time.Time) (uint64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := sort.Search(len(s.msgs), func(i int) bool { return s.msgs[i].at.After(t) })
	return s.first + uint64(n) - 1, nil
}

// trim drops everything before a sequence.
func (s *stream) trim(ctx context.Context, before uint64) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.first + uint64(len(s.msgs)) - 1; before > last+1 {
		return fmt.Errorf("trim before sequence %d: the stream ends at %d", before, last)
	}
	if before <= s.first {
		return nil
	}
	n := min(before-s.first, uint64(len(s.msgs)))
	s.cut = s.msgs[n-1]
	s.msgs = s.msgs[n:]
	s.first += n
	return nil
}

// logView is the control plane's side of a stream.
type logView struct{ s *stream }

func (l logView) Append(ctx context.Context, drafts ...bus.Draft) ([]uint64, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	ready, err := wire.Prepare(drafts)
	if err != nil {
		return nil, err
	}
	wire.Attribute(ready, bus.AskedOf(ctx))
	items := make([]item, len(ready))
	now := time.Now()
	for i, r := range ready {
		items[i] = item{
			subject: r.Subject, id: r.Header.ID, header: r.Envelope(now), data: r.Data, expect: r.Expect,
		}
	}
	return l.s.append(ctx, items)
}

func record(m message) events.Recorded {
	return wire.Record(m.seq, m.subject, m.at, m.header, m.data, nil)
}

func (l logView) Follow(ctx context.Context, from, until uint64, handle func(events.Recorded) error) error {
	return l.s.follow(ctx, from, until, func(m message) error { return handle(record(m)) })
}

func (l logView) Last(ctx context.Context) (uint64, error) { return l.s.last(ctx) }

func (l logView) LastOf(ctx context.Context, subject events.Subject) (uint64, error) {
	return l.s.lastOfSubject(ctx, string(subject))
}

func (l logView) Get(ctx context.Context, seq uint64) (events.Recorded, error) {
	m, err := l.s.get(ctx, seq)
	if err != nil {
		return events.Recorded{}, err
	}
	return record(m), nil
}

func (l logView) SeqAt(ctx context.Context, t time.Time) (uint64, error) { return l.s.seqAt(ctx, t) }

func (l logView) Span(ctx context.Context) (first, last uint64, err error) {
	if err := l.s.usable(ctx); err != nil {
		return 0, 0, err
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.s.first, l.s.first + uint64(len(l.s.msgs)) - 1, nil
}

// Trim implements bus.Trimmer.
func (l logView) Trim(ctx context.Context, before uint64) error {
	last, err := l.s.last(ctx)
	if err != nil {
		return err
	}
	if before == last+1 {
		before = last // the newest stays
	}
	return l.s.trim(ctx, before)
}

// KeepIn implements bus.Trimmer.
func (l logView) KeepIn(_ context.Context, archive string) error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.archive = archive
	return nil
}

// Cut implements bus.Trimmer.
func (l logView) Cut(context.Context) (bus.Cut, error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	c := bus.Cut{Seq: l.s.cut.seq, Archive: l.s.archive}
	if c.Seq > 0 {
		c.Time, c.ID = l.s.cut.at, record(l.s.cut).Header.ID
	}
	return c, nil
}
