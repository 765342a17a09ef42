package ps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/tracectx"
)

// errFenced ends a process whose shard another one has taken.
var errFenced = errors.New("another process has taken this shard")

const (
	busTimeout = 5 * time.Second // of one call
	maxBackoff = 2 * time.Second
)

// publisher writes the shard's two subjects of the sync stream. Each call is guarded by
// the last sequence that this writer knows, so a successor's first message ends it. It
// belongs to one goroutine.
type publisher struct {
	schema     *schema
	deltas     bus.Deltas
	tracer     trace.Tracer
	rows, vars string // subjects
	// newest is the newest epoch of the shard that the facts know of: whoever writes deltas
	// has said that it is ready before, so a delta of a greater epoch is nobody's.
	newest  func(context.Context) (uint64, error)
	at      map[string]uint64 // subject -> last sequence, which the next append expects
	epoch   uint64
	count   uint64             // publications of this epoch; part of their ids
	queue   [][]bus.DeltaDraft // groups to store, oldest first, unchanged until they are
	applied int                // publications with applies since dense variables were last published
	denseAt time.Time          // when they were
	pause   time.Duration      // before they are published again
	retryAt time.Time
	backoff time.Duration
}

func newPublisher(f *schema, bzid string, b bus.Deltas, t trace.Tracer, newest func(context.Context) (uint64, error)) *publisher {
	rows := bus.DeltaSubject(bzid, f.job, fmt.Sprint(f.shard))
	return &publisher{schema: f, deltas: b, tracer: t, newest: newest, rows: rows, vars: rows + ".dense", pause: f.densePause, at: map[string]uint64{}}
}

// subjects are those that this shard writes.
func (p *publisher) subjects() []string {
	if len(p.schema.bands) == 0 {
		return []string{p.rows}
	}
	return []string{p.rows, p.vars}
}

// seq is the last sequence of the shard, over both subjects.
func (p *publisher) seq() uint64 { return max(p.at[p.rows], p.at[p.vars]) }

// begin forgets everything of an earlier epoch.
func (p *publisher) begin(epoch uint64, at map[string]uint64) {
	p.epoch, p.count, p.at, p.queue = epoch, 0, at, nil
	p.applied, p.denseAt, p.retryAt, p.backoff = 0, time.Time{}, time.Time{}, 0
}

// due decides whether dense variables go along: with every n-th publication that holds
// applies, and once applies have paused, but no sooner than their rate allows.
func (p *publisher) due(every int) func(applies int) bool {
	return func(applies int) bool {
		if applies > 0 {
			p.applied++
		}
		now := time.Now()
		if applies > 0 && p.applied < every || now.Sub(p.denseAt) < p.pause {
			return false
		}
		p.applied, p.denseAt = 0, now
		return true
	}
}

// publish stores what was left over and then what is touched. What a failed call may
// have stored is kept and sent again, the same under the same ids.
func (p *publisher) publish(ctx context.Context, s *state, dense func(int) bool) error {
	if err := p.send(ctx); err != nil {
		return err
	}
	h := s.collectDirty(dense)
	if h == nil {
		return nil
	}
	if h.bad != nil {
		return h.bad
	}
	if h.trace != "" {
		var span trace.Span
		ctx, span = p.tracer.Start(tracectx.With(ctx, h.trace), "ps.flush", trace.WithSpanKind(trace.SpanKindProducer))
		defer span.End()
	}
	if err := p.enqueue(h, tracectx.Of(ctx)); err != nil {
		return err
	}
	return p.send(ctx)
}

func (p *publisher) enqueue(h *dirtyRows, traceparent string) error {
	p.count++
	for _, x := range []struct {
		subject string
		ds      []*delta.Delta
	}{{p.rows, h.rowDeltas(p.schema)}, {p.vars, h.denseDeltas(p.schema)}} {
		groups, err := drafts(x.subject, fmt.Sprintf("%s/e%d/%d", x.subject, p.epoch, p.count), traceparent, x.ds)
		if err != nil {
			return err
		}
		p.queue = append(p.queue, groups...)
	}
	return nil
}

// send stores the queue in order. errFenced is final; any other error may be tried
// again.
func (p *publisher) send(ctx context.Context) error {
	for len(p.queue) > 0 {
		g := p.queue[0]
		g[0].Expect = p.at[g[0].Subject]
		cctx, cancel := context.WithTimeout(ctx, busTimeout)
		seq, err := p.deltas.Publish(cctx, g...)
		stored := err == nil
		if errors.Is(err, bus.ErrConflict) {
			seq, stored, err = p.conflict(cctx, g)
		}
		cancel()
		if err != nil {
			return fmt.Errorf("publish deltas on %s: %w", g[0].Subject, err)
		}
		p.at[g[0].Subject] = seq
		if stored {
			p.queue = p.queue[1:]
		}
	}
	return nil
}

// conflict finds out why the sequence that g expects did not hold: a successor (errFenced), g itself
// stored by a call whose answer was lost, or the stream having discarded what was
// expected or holding what is no writer's, in which case the sequence to expect next is returned.
func (p *publisher) conflict(ctx context.Context, g []bus.DeltaDraft) (seq uint64, stored bool, err error) {
	last, err := p.deltas.LastOf(ctx, g[0].Subject)
	if err != nil {
		return 0, false, err
	}
	if last < g[0].Expect {
		return last, false, nil
	}
	if last == g[0].Expect {
		return 0, false, fmt.Errorf("the expected sequence %d holds and is refused: %w", last, bus.ErrUnavailable)
	}
	m, err := p.deltas.Get(ctx, last)
	if err != nil {
		return 0, false, err
	}
	if bytes.Equal(m.Data, g[len(g)-1].Data) {
		return last, true, nil
	}
	if err := p.fenced(ctx, g[0].Subject, last); err != nil {
		return 0, false, err
	}
	return last, false, nil
}

// fenced is errFenced if a successor has taken the shard. What lies at sequence last of
// the subject is not this writer's; where nobody has followed it, it is a stranger's.
func (p *publisher) fenced(ctx context.Context, subject string, last uint64) error {
	newest, err := p.newest(ctx)
	if err != nil {
		return err
	}
	if newest > p.epoch {
		return fmt.Errorf("%w: epoch %d has followed %d, delta %d on %s is another's", errFenced, newest, p.epoch, last, subject)
	}
	return nil
}

// unfenced makes sure that nobody else has written since this writer last did.
func (p *publisher) unfenced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	for _, subject := range p.subjects() {
		last, err := p.deltas.LastOf(ctx, subject)
		if err != nil {
			return fmt.Errorf("find the end of %s: %w", subject, err)
		}
		if last > p.at[subject] {
			if err := p.fenced(ctx, subject, last); err != nil {
				return err
			}
			p.at[subject] = last
		}
	}
	return nil
}

// takeover is the first message of an epoch.
func (p *publisher) takeover(subject string, step uint64) (bus.DeltaDraft, error) {
	data, err := proto.Marshal(&delta.Delta{
		Job: p.schema.job, Shard: p.schema.shard, Shards: p.schema.shards, Epoch: p.epoch, Step: step, Chunks: 1, Takeover: true,
	})
	return bus.DeltaDraft{
		Subject: subject, ID: fmt.Sprintf("%s/e%d/takeover", subject, p.epoch), Data: data,
	}, err
}

// wait is how long a failed publication waits for its next try.
func (p *publisher) wait() {
	p.backoff = min(max(2*p.backoff, 50*time.Millisecond), maxBackoff)
	p.retryAt = time.Now().Add(p.backoff)
}
