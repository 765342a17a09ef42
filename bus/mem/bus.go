// Package mem is the bus in memory: the contract of package bus for tests, and for a role that
// runs without a log, shared by any number of roles in one process. It forgets everything at the end.
package mem

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/events"
)

// Bus implements bus.Bus. All its methods may be called at the same time.
type Bus struct {
	closed chan struct{}
	once   sync.Once

	log      *stream
	sync     *stream
	letters  letters
	commands commands
	signals  signals
	leases   leases
}

var _ bus.Bus = (*Bus)(nil)

// Option changes what New returns.
type Option func(*Bus)

// LetterLimit bounds the dead letters' bytes; default: unlimited.
func LetterLimit(bytes int64) Option { return func(b *Bus) { b.letters.limit = bytes } }

// LetterAge is for how long letters are kept; default: for ever.
func LetterAge(d time.Duration) Option { return func(b *Bus) { b.letters.age = d } }

// New returns an empty bus. It owns no goroutine until somebody listens or serves.
func New(options ...Option) *Bus {
	b := &Bus{closed: make(chan struct{})}
	b.log = newStream(b.closed)
	b.sync = newStream(b.closed)
	b.letters = letters{bus: b, held: map[string]*letter{}, more: map[string]wire.Summary{}, settled: map[string]uint64{}}
	b.commands = commands{bus: b, services: map[string][]*endpoint{}}
	b.signals = signals{bus: b, listeners: map[*listener]struct{}{}}
	b.leases = leases{bus: b, held: map[string]*lease{}}
	for _, o := range options {
		o(b)
	}
	return b
}

func (b *Bus) Log() bus.Log                 { return logView{b.log} }
func (b *Bus) Deltas() bus.Deltas           { return deltas{b.sync} }
func (b *Bus) DeadLetters() bus.DeadLetters { return &b.letters }
func (b *Bus) Commands() bus.Commands       { return &b.commands }
func (b *Bus) Signals() bus.Signals         { return &b.signals }
func (b *Bus) Leases() bus.Leases           { return &b.leases }

// Close ends every Follow and refuses every later call with bus.ErrUnavailable.
func (b *Bus) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

// Done implements bus.Bus.
func (b *Bus) Done() <-chan struct{} { return b.closed }

// Err implements bus.Bus: nothing but Close ends it.
func (b *Bus) Err() error { return nil }

// Publish stores bytes on a control-plane subject as a bare publish would: nothing is
// validated, and without headers the id follows from the sequence.
func (b *Bus) Publish(ctx context.Context, subject string, header map[string][]string, data []byte) (uint64, error) {
	if err := wire.CheckSubject(subject, false); err != nil {
		return 0, err
	}
	if !wire.InLog(subject) {
		return 0, fmt.Errorf("%w: no stream takes %s; the log takes %v", events.ErrInvalid, subject, wire.LogSubjects())
	}
	id := ""
	if v := header[wire.MsgID]; len(v) > 0 {
		id = v[0]
	}
	seqs, err := b.log.append(ctx, []item{{subject: subject, id: id, header: header, data: data, expect: bus.Any}})
	if err != nil {
		return 0, err
	}
	return seqs[0], nil
}
