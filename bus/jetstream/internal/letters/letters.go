// Package letters keeps what was refused, with the reason, in a stream of dead letters.
package letters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
	"github.com/monolith-go/monolith/bus/jetstream/internal/stream"
	"github.com/monolith-go/monolith/events"
)

// Letters is the dead-letter stream. Every refused message has a subject of its own,
// which holds one message: the letter, however often and however late it is parked, or
// the tombstone that took its place. That it was re-driven is a message beside it.
type Letters struct {
	conn   *conn.Conn
	bzid   string
	shares shares
	sign   signs
}

// signs says who asks for what a subject takes.
type signs func(subject string, data []byte, now time.Time) (events.Asked, error)

var _ bus.DeadLetters = (*Letters)(nil)

// New returns the letters of a namespace, "" being all; its streams are there. A process has
// one, which counts what it parks. A request that is sent again is the request of whoever does that.
func New(c *conn.Conn, bzid string, sign signs) *Letters {
	return &Letters{conn: c, bzid: bzid, sign: sign}
}

func (l *Letters) stream(name string) stream.Stream { return stream.Of(l.conn, name) }

// put publishes and, when the server is away, again.
func (l *Letters) put(ctx context.Context, m *nats.Msg) (a *conn.Ack, err error) {
	ctx, cancel := l.conn.Bound(ctx)
	defer cancel()
	err = l.conn.Retry(ctx, func(ctx context.Context) error {
		a, err = l.conn.Request(ctx, m)
		var api *conn.APIError
		if errors.As(err, &api) {
			return api.Sentinel()
		}
		return err
	})
	return a, err
}

// Park implements bus.DeadLetters.
func (l *Letters) Park(ctx context.Context, p bus.Parked) (uint64, error) {
	data, err := wire.EncodeLetter(p)
	if err != nil {
		return 0, err
	}
	subject := wire.LetterSubject(l.bzid, p)
	source, cost := wire.ShareOf(p.Stream), wire.LetterCost(subject, len(data))
	if wire.LetterBZID(subject) == l.bzid { // of others' letters only the server knows how many there are
		err = l.admit(ctx, source, cost)
	}
	if err == nil {
		var a *conn.Ack
		a, err = l.put(ctx, &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
			wire.MsgID:        {subject}, // of this namespace's letter
			wire.ContentType:  {wire.JSON},
			conn.ExpectHeader: {"0"},
		}})
		if err == nil {
			l.shares.add(source, cost)
			return a.Seq, nil
		}
	}
	switch {
	case errors.Is(err, bus.ErrConflict):
		seq, err := l.stream(wire.LetterStream).LastOf(ctx, subject)
		if err == nil && seq == 0 {
			err = fmt.Errorf("%w: the stream has a letter on %s and does not show it", bus.ErrUnavailable, subject)
		}
		return seq, err
	case errors.Is(err, bus.ErrFull):
		seq, lerr := l.stream(wire.LetterStream).LastOf(ctx, subject)
		if lerr != nil || seq > 0 {
			return seq, lerr // parked when there was room
		}
		if cerr := l.count(ctx, p); cerr != nil {
			return 0, fmt.Errorf("park %s %d: %w; count it in a summary: %w", p.Stream, p.StreamSeq, err, cerr)
		}
		return 0, nil
	}
	return 0, fmt.Errorf("park %s %d: %w", p.Stream, p.StreamSeq, err)
}

// Knows implements bus.DeadLetters.
func (l *Letters) Knows(ctx context.Context, p bus.Parked) (bool, error) {
	subject := wire.LetterSubject(l.bzid, p)
	seq, err := l.stream(wire.LetterStream).LastOf(ctx, subject)
	if err != nil || seq > 0 {
		return err == nil, err
	}
	s, _, err := l.summary(ctx, wire.SummarySubject(wire.LetterBZID(subject), p))
	return s.Counts(p), err
}

// List implements bus.DeadLetters.
func (l *Letters) List(ctx context.Context) (out []bus.Parked, err error) {
	err = l.Each(ctx, func(p bus.Parked) error { out = append(out, p); return nil })
	return out, err
}

// Each implements bus.DeadLetters.
func (l *Letters) Each(ctx context.Context, handle func(bus.Parked) error) error {
	if err := l.each(ctx, func(p bus.Parked, _ string) error { return handle(p) }); err != nil {
		return fmt.Errorf("read the dead letters: %w", err)
	}
	return nil
}

// each also says on which subject what it hands on stands.
func (l *Letters) each(ctx context.Context, handle func(p bus.Parked, subject string) error) error {
	marked := map[string]bool{} // subjects of letters
	err := l.stream(wire.LetterStream).Scan(ctx, l.filter()+".*.*.redriven", false, func(m *stream.Message) error {
		if letter, mark := wire.IsMark(m.Subject); mark {
			marked[letter] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = l.stream(wire.LetterStream).Scan(ctx, l.filter()+".>", true, func(m *stream.Message) error {
		if _, mark := wire.IsMark(m.Subject); mark || wire.IsTombstone(m.Data) {
			return nil
		}
		p := letter(m)
		p.Redriven = marked[m.Subject]
		return handle(p, m.Subject)
	})
	if err != nil {
		return err
	}
	return l.stream(wire.NoteStream).Scan(ctx, l.summaries()+".>", true, func(m *stream.Message) error {
		s, err := wire.DecodeSummary(m.Data)
		if err != nil {
			return handle(bus.Parked{Time: m.Time, Reason: "unreadable: " + err.Error(), Subject: m.Subject, Data: m.Data, Unreadable: true}, m.Subject)
		}
		return handle(s.Parked(), m.Subject)
	})
}

// filter is what the subjects of this namespace's letters begin with, summaries the same
// of its summaries.
func (l *Letters) filter() string {
	if l.bzid == "" {
		return wire.LetterRoot + ".*"
	}
	return wire.LetterRoot + "." + events.Escape(l.bzid)
}

func (l *Letters) summaries() string {
	if l.bzid == "" {
		return wire.NoteRoot + ".*.more"
	}
	return wire.SummaryRoot(l.bzid)
}

func letter(m *stream.Message) bus.Parked {
	p := wire.DecodeLetter(m.Subject, m.Data)
	p.Seq, p.Time = m.Seq, m.Time
	return p
}

// show also says on which subject the letter stands.
func (l *Letters) show(ctx context.Context, seq uint64) (bus.Parked, string, error) {
	if seq == 0 {
		return bus.Parked{}, "", fmt.Errorf("dead letter 0: %w; the first is 1", bus.ErrNotFound)
	}
	m, err := l.stream(wire.LetterStream).Ask(ctx, stream.Query{Seq: seq})
	if err != nil {
		return bus.Parked{}, "", fmt.Errorf("dead letter %d: %w", seq, err)
	}
	if _, mark := wire.IsMark(m.Subject); mark {
		return bus.Parked{}, "", fmt.Errorf("dead letter %d: %w: that is the mark of another one", seq, bus.ErrNotFound)
	}
	if wire.IsTombstone(m.Data) {
		return bus.Parked{}, "", fmt.Errorf("dead letter %d: %w: the letter that stood there was removed", seq, bus.ErrNotFound)
	}
	if bzid := l.bzid; bzid != "" && wire.LetterBZID(m.Subject) != bzid {
		return bus.Parked{}, "", fmt.Errorf("dead letter %d: %w: it belongs to another namespace than %s", seq, bus.ErrNotFound, bzid)
	}
	p := letter(m)
	mark, err := l.mark(ctx, m.Subject)
	p.Redriven = mark > 0
	return p, m.Subject, err
}

// mark is the sequence of the mark of the letter on the subject, 0 for none.
func (l *Letters) mark(ctx context.Context, subject string) (uint64, error) {
	if _, _, ok := wire.ParseLetter(subject); !ok {
		return 0, nil
	}
	return l.stream(wire.LetterStream).LastOf(ctx, wire.MarkSubject(subject))
}

// Show implements bus.DeadLetters.
func (l *Letters) Show(ctx context.Context, seq uint64) (bus.Parked, error) {
	p, _, err := l.show(ctx, seq)
	return p, err
}

// Redrive publishes under an id that follows from the letter, so that a second attempt
// after a crash between publish and mark stores nothing twice.
func (l *Letters) Redrive(ctx context.Context, seq uint64, data []byte) (uint64, error) {
	p, subject, err := l.show(ctx, seq)
	if err != nil {
		return 0, err
	}
	if p.Redriven {
		return 0, fmt.Errorf("%w: letter %d has been re-driven before", bus.ErrConflict, seq)
	}
	header, data, err := wire.Redrive(p, fmt.Sprintf("redrive-%d", seq), data)
	if err != nil {
		return 0, err
	}
	if len(data) > wire.MaxEvent {
		return 0, fmt.Errorf("re-drive letter %d: %w: %d bytes", seq, bus.ErrTooLarge, len(data))
	}
	if events.Subject(p.Subject).IsRequest() {
		who, err := l.sign(p.Subject, data, time.Now())
		if err != nil {
			return 0, fmt.Errorf("re-drive letter %d: %w", seq, err)
		}
		wire.EncodeAsked(who, header)
	}
	a, err := l.put(ctx, &nats.Msg{Subject: p.Subject, Header: header, Data: data})
	if err != nil {
		return 0, fmt.Errorf("re-drive letter %d: %w", seq, err)
	}
	mark, err := json.Marshal(wire.Mark{Letter: seq, Seq: a.Seq})
	if err != nil {
		return 0, err
	}
	_, err = l.put(ctx, &nats.Msg{Subject: wire.MarkSubject(subject), Data: mark, Header: nats.Header{
		wire.ContentType:  {wire.JSON},
		conn.ExpectHeader: {"0"},
	}})
	if err != nil && !errors.Is(err, bus.ErrConflict) {
		return a.Seq, fmt.Errorf("letter %d is re-driven as %d, but not marked so; remove it, so that nobody does it again: %w", seq, a.Seq, err)
	}
	return a.Seq, nil
}

// Remove implements bus.DeadLetters.
func (l *Letters) Remove(ctx context.Context, seq uint64) error {
	_, subject, err := l.show(ctx, seq)
	if err == nil {
		err = l.remove(ctx, seq, subject)
	}
	return err
}

// remove puts the tombstone in the letter's place: the subject holds one message, so that
// the letter goes as its tombstone comes. A stream of several replicas that is full takes
// none before the letter is gone. What is no letter's subject is simply deleted.
func (l *Letters) remove(ctx context.Context, seq uint64, subject string) error {
	defer l.shares.forget()
	_, _, remembered := wire.ParseLetter(subject)
	var err error
	if remembered {
		err = l.bury(ctx, subject, seq)
	}
	if !remembered || errors.Is(err, bus.ErrFull) {
		if err = l.delete(ctx, seq); err == nil && remembered {
			err = l.bury(ctx, subject, 0)
		}
	}
	if err != nil {
		return fmt.Errorf("remove letter %d: %w", seq, err)
	}
	mark, err := l.mark(ctx, subject)
	if err == nil && mark > 0 {
		err = l.delete(ctx, mark)
	}
	return err
}

func (l *Letters) bury(ctx context.Context, subject string, expect uint64) error {
	_, err := l.put(ctx, &nats.Msg{Subject: subject, Data: []byte(wire.Tombstone), Header: nats.Header{conn.ExpectHeader: {strconv.FormatUint(expect, 10)}}})
	if errors.Is(err, bus.ErrConflict) { // perhaps by an attempt whose ack was lost
		m, derr := l.stream(wire.LetterStream).Ask(ctx, stream.Query{LastFor: subject})
		if derr == nil && wire.IsTombstone(m.Data) {
			return nil
		}
	}
	return err
}

func (l *Letters) delete(ctx context.Context, seq uint64) error {
	return l.onStream(ctx, wire.LetterStream, func(ctx context.Context, s jetstream.Stream) error {
		if err := conn.Failure(s.DeleteMsg(ctx, seq)); !errors.Is(err, bus.ErrNotFound) {
			return err
		}
		return nil
	})
}

// onStream asks the server to change a stream, again when it is away.
func (l *Letters) onStream(ctx context.Context, stream string, change func(context.Context, jetstream.Stream) error) error {
	ctx, cancel := l.conn.Bound(ctx)
	defer cancel()
	return l.conn.Retry(ctx, func(ctx context.Context) error {
		ctx, cancel := l.conn.WhileUp(ctx, conn.RequestTimeout)
		defer cancel()
		s, err := l.conn.JS.Stream(ctx, stream)
		if err != nil {
			return conn.Failure(err)
		}
		return conn.Failure(change(ctx, s))
	})
}

// Purge implements bus.DeadLetters.
func (l *Letters) Purge(ctx context.Context, match func(bus.Parked) bool) (n int, err error) {
	err = l.each(ctx, func(p bus.Parked, subject string) error {
		if !match(p) {
			return nil
		}
		n++
		if strings.HasPrefix(subject, wire.NoteRoot+".") {
			return l.onStream(ctx, wire.NoteStream, func(ctx context.Context, s jetstream.Stream) error {
				return s.Purge(ctx, jetstream.WithPurgeSubject(subject))
			})
		}
		err := l.remove(ctx, p.Seq, subject)
		if errors.Is(err, bus.ErrConflict) {
			n, err = n-1, nil // somebody else's purge was faster
		}
		return err
	})
	if err != nil {
		return n, fmt.Errorf("purge the dead letters: %w", err)
	}
	return n, nil
}

// count adds p to the summary of its owner and stream.
func (l *Letters) count(ctx context.Context, p bus.Parked) error {
	bzid := wire.LetterBZID(wire.LetterSubject(l.bzid, p))
	return l.update(ctx, wire.SummarySubject(bzid, p), func(old *stream.Message) ([]byte, error) {
		var s wire.Summary
		if old != nil {
			s, _ = wire.DecodeSummary(old.Data) // one that cannot be read begins anew
		}
		if s.Counts(p) {
			return nil, nil
		}
		return s.With(p, time.Now()).Encode()
	})
}

func (l *Letters) summary(ctx context.Context, subject string) (s wire.Summary, seq uint64, err error) {
	m, err := l.stream(wire.NoteStream).Ask(ctx, stream.Query{LastFor: subject})
	if errors.Is(err, bus.ErrNotFound) {
		return s, 0, nil
	}
	if err == nil {
		seq = m.Seq
		s, _ = wire.DecodeSummary(m.Data)
	}
	return s, seq, err
}

// update replaces a note by what next makes of it, nil for none yet, until nobody was
// faster. No bytes: it stays as it is.
func (l *Letters) update(ctx context.Context, subject string, next func(old *stream.Message) ([]byte, error)) error {
	ctx, cancel := l.conn.Bound(ctx)
	defer cancel()
	pauses := conn.NewPauses()
	for {
		last := uint64(0)
		old, err := l.stream(wire.NoteStream).Ask(ctx, stream.Query{LastFor: subject})
		switch {
		case errors.Is(err, bus.ErrNotFound):
			old = nil
		case err != nil:
			return err
		default:
			last = old.Seq
		}
		data, err := next(old)
		if err != nil || data == nil {
			return err
		}
		_, err = l.put(ctx, &nats.Msg{Subject: subject, Data: data, Header: nats.Header{conn.ExpectHeader: {strconv.FormatUint(last, 10)}}})
		if !errors.Is(err, bus.ErrConflict) {
			return err
		}
		if pauses.Wait(ctx) != nil {
			return fmt.Errorf("%w: %w", bus.ErrUnavailable, err)
		}
	}
}

// Settled implements bus.DeadLetters.
func (l *Letters) Settled(ctx context.Context, bzid, reaction string) (uint64, error) {
	m, err := l.stream(wire.NoteStream).Ask(ctx, stream.Query{LastFor: wire.PlaceSubject(bzid, reaction)})
	if errors.Is(err, bus.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return place(m), nil
}

// place reads what Settle wrote; anything else is the beginning, from which a reaction
// may always start.
func place(m *stream.Message) uint64 {
	seq, err := strconv.ParseUint(string(m.Data), 10, 64)
	if err != nil {
		return 0
	}
	return seq
}

// Settle implements bus.DeadLetters.
func (l *Letters) Settle(ctx context.Context, bzid, reaction string, seq uint64) error {
	err := l.update(ctx, wire.PlaceSubject(bzid, reaction), func(old *stream.Message) ([]byte, error) {
		if old != nil {
			if have := place(old); have >= seq {
				_, last, err := l.stream(wire.LogStream).Span(ctx)
				if err != nil || have <= last {
					return nil, err
				} // of another log, which was longer
			}
		}
		return strconv.AppendUint(nil, seq, 10), nil
	})
	if err != nil {
		return fmt.Errorf("remember the place of %s: %w", reaction, err)
	}
	return nil
}
