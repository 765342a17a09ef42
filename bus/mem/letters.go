package mem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
)

// letters is the dead-letter stream.
type letters struct {
	bus   *Bus
	limit int64         // bytes, 0: none
	age   time.Duration // for which a letter is kept, 0: for ever

	mu      sync.Mutex
	seq     uint64
	held    map[string]*letter // by subject
	more    map[string]wire.Summary
	settled map[string]uint64
}

// letter is what stands on one subject.
type letter struct {
	seq      uint64
	subject  string
	at       time.Time
	data     []byte // a tombstone once it was removed
	redriven bool
}

func (l *letter) parked() bus.Parked {
	p := wire.DecodeLetter(l.subject, l.data)
	p.Seq, p.Time, p.Redriven = l.seq, l.at, l.redriven
	return p
}

// lock is held until the function that it returns is called.
func (l *letters) lock(ctx context.Context) (unlock func(), err error) {
	if err := usable(ctx, l.bus.closed); err != nil {
		return nil, err
	}
	l.mu.Lock()
	if l.age > 0 {
		maps.DeleteFunc(l.held, func(_ string, x *letter) bool { return time.Since(x.at) > l.age })
	}
	return l.mu.Unlock, nil
}

// Park implements bus.DeadLetters.
func (l *letters) Park(ctx context.Context, p bus.Parked) (uint64, error) {
	data, err := wire.EncodeLetter(p)
	if err != nil {
		return 0, err
	}
	unlock, err := l.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	subject := wire.LetterSubject("", p)
	if x, ok := l.held[subject]; ok {
		return x.seq, nil
	}
	if use := l.usage(wire.LetterBZID(subject)); use.Fits(wire.ShareOf(p.Stream), wire.LetterCost(subject, len(data)), l.limit) != nil {
		at := wire.SummarySubject(wire.LetterBZID(subject), p)
		if s := l.more[at]; !s.Counts(p) {
			l.more[at] = s.With(p, time.Now())
		}
		return 0, nil
	}
	return l.put(subject, data).seq, nil
}

// usage is what a namespace's letters take; nothing where that is not limited.
func (l *letters) usage(bzid string) (use wire.Usage) {
	if l.limit == 0 {
		return use
	}
	for _, x := range l.held {
		if wire.LetterBZID(x.subject) == bzid {
			stream, _, _ := wire.ParseLetter(x.subject)
			use.Add(wire.ShareOf(stream), wire.LetterCost(x.subject, len(x.data)))
		}
	}
	return use
}

func (l *letters) put(subject string, data []byte) *letter {
	l.seq++
	x := &letter{seq: l.seq, subject: subject, at: time.Now().UTC().Round(0), data: data}
	l.held[subject] = x
	return x
}

// Knows implements bus.DeadLetters.
func (l *letters) Knows(ctx context.Context, p bus.Parked) (bool, error) {
	unlock, err := l.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	subject := wire.LetterSubject("", p)
	_, held := l.held[subject]
	return held || l.more[wire.SummarySubject(wire.LetterBZID(subject), p)].Counts(p), nil
}

// Each implements bus.DeadLetters.
func (l *letters) Each(ctx context.Context, handle func(bus.Parked) error) error {
	return l.each(ctx, func(p bus.Parked, _ string) error { return handle(p) })
}

// each also hands on the subject.
func (l *letters) each(ctx context.Context, handle func(p bus.Parked, subject string) error) error {
	unlock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	type one struct {
		bus.Parked
		subject string
	}
	var all []one
	for _, x := range slices.SortedFunc(maps.Values(l.held), func(a, b *letter) int { return cmp.Compare(a.seq, b.seq) }) {
		if !wire.IsTombstone(x.data) {
			all = append(all, one{x.parked(), x.subject})
		}
	}
	for _, at := range slices.Sorted(maps.Keys(l.more)) {
		all = append(all, one{l.more[at].Parked(), at})
	}
	unlock()
	for _, p := range all {
		if err := handle(p.Parked, p.subject); err != nil {
			return err
		}
	}
	return nil
}

// List implements bus.DeadLetters.
func (l *letters) List(ctx context.Context) (out []bus.Parked, err error) {
	err = l.Each(ctx, func(p bus.Parked) error { out = append(out, p); return nil })
	return out, err
}

// Show implements bus.DeadLetters.
func (l *letters) Show(ctx context.Context, seq uint64) (bus.Parked, error) {
	unlock, err := l.lock(ctx)
	if err != nil {
		return bus.Parked{}, err
	}
	defer unlock()
	x, err := l.find(seq)
	if err != nil {
		return bus.Parked{}, err
	}
	return x.parked(), nil
}

func (l *letters) find(seq uint64) (*letter, error) {
	for _, x := range l.held {
		if x.seq == seq && !wire.IsTombstone(x.data) {
			return x, nil
		}
	}
	return nil, fmt.Errorf("dead letter %d: %w", seq, bus.ErrNotFound)
}

// Redrive implements bus.DeadLetters.
func (l *letters) Redrive(ctx context.Context, seq uint64, data []byte) (uint64, error) {
	unlock, err := l.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	x, err := l.find(seq)
	if err != nil {
		return 0, err
	}
	if x.redriven {
		return 0, fmt.Errorf("%w: letter %d has been re-driven before", bus.ErrConflict, seq)
	}
	p := x.parked()
	header, data, err := wire.Redrive(p, fmt.Sprintf("redrive-%d", seq), data)
	if err != nil {
		return 0, err
	}
	stored, err := l.bus.Publish(ctx, p.Subject, header, data)
	x.redriven = err == nil
	return stored, err
}

// Remove implements bus.DeadLetters.
func (l *letters) Remove(ctx context.Context, seq uint64) error {
	unlock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	x, err := l.find(seq)
	if err != nil {
		return err
	}
	l.put(x.subject, []byte(wire.Tombstone))
	return nil
}

// Purge implements bus.DeadLetters.
func (l *letters) Purge(ctx context.Context, match func(bus.Parked) bool) (n int, err error) {
	err = l.each(ctx, func(p bus.Parked, subject string) error {
		if !match(p) {
			return nil
		}
		n++
		if p.More != nil {
			unlock, err := l.lock(ctx)
			if err == nil {
				delete(l.more, subject)
				unlock()
			}
			return err
		}
		err := l.Remove(ctx, p.Seq)
		if errors.Is(err, bus.ErrNotFound) {
			n, err = n-1, nil // somebody else's purge was faster
		}
		return err
	})
	return n, err
}

// Settled implements bus.DeadLetters.
func (l *letters) Settled(ctx context.Context, bzid, reaction string) (uint64, error) {
	unlock, err := l.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	return l.settled[wire.PlaceSubject(bzid, reaction)], nil
}

// Settle implements bus.DeadLetters.
func (l *letters) Settle(ctx context.Context, bzid, reaction string, seq uint64) error {
	unlock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	at := wire.PlaceSubject(bzid, reaction)
	l.settled[at] = max(l.settled[at], seq)
	return nil
}
