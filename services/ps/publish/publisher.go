// Package publish is how a shard of a parameter server tells its followers what training
// changed: rows and variables as absolute values, in deltas of bounded size, on subjects that
// a successor takes away from it by publishing there.
package publish

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
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/tracectx"
)

// ErrFenced ends a process whose shard another one has taken.
var ErrFenced = errors.New("another process has taken this shard")

const (
	busTimeout = 5 * time.Second // of one call
	maxBackoff = 2 * time.Second
)

// Config says for which shard of which job a [Publisher] writes.
type Config struct {
	BZID, Job     string
	Shard, Shards int
	Spec          *model.ModelSpec
	// DenseRate is how many bytes a second the model's dense variables, on all shards
	// together, are published with at most.
	DenseRate int64
}

// Publisher writes the shard's two subjects of the sync stream. Each call is guarded by
// the last sequence that this writer knows, so a successor's first message ends it. It
// belongs to one goroutine.
type Publisher struct {
	writer     Writer
	deltas     bus.Deltas
	tracer     trace.Tracer
	rows, vars string // subjects
	dense      bool   // the shard has dense variables
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

// New makes a publisher that writes nothing before [Publisher.Begin]. newest says the newest
// epoch of the shard that the facts know of.
func New(cfg Config, b bus.Deltas, t trace.Tracer, newest func(context.Context) (uint64, error)) *Publisher {
	rows := bus.DeltaSubject(cfg.BZID, cfg.Job, fmt.Sprint(cfg.Shard))
	variables, bytes := modelspec.Variables(cfg.Spec), 0.0
	for _, v := range variables {
		bytes += 4 * float64(v.Size)
	}
	return &Publisher{
		writer: Writer{Job: cfg.Job, Shard: uint32(cfg.Shard), Shards: uint32(cfg.Shards)},
		deltas: b, tracer: t, newest: newest, rows: rows, vars: rows + ".dense", at: map[string]uint64{},
		dense: len(modelspec.BandsOf(variables, cfg.Shard, cfg.Shards)) > 0,
		pause: time.Duration(bytes / float64(cfg.DenseRate) * float64(time.Second)),
	}
}

// Subjects are those that this shard writes.
func (p *Publisher) Subjects() []string {
	if !p.dense {
		return []string{p.rows}
	}
	return []string{p.rows, p.vars}
}

// Seq is the last sequence of the shard, over both subjects.
func (p *Publisher) Seq() uint64 { return max(p.at[p.rows], p.at[p.vars]) }

// Begin forgets everything of an earlier epoch.
func (p *Publisher) Begin(epoch uint64, at map[string]uint64) {
	p.epoch, p.count, p.at, p.queue = epoch, 0, at, nil
	p.applied, p.denseAt, p.retryAt, p.backoff = 0, time.Time{}, time.Time{}, 0
}

// Due decides whether dense variables go along: with every n-th publication that holds
// applies, and once applies have paused, but no sooner than their rate allows.
func (p *Publisher) Due(every int) func(applies int) bool {
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

// Publish stores what was left over and then what collect hands over, nil for nothing. What
// a failed call may have stored is kept and sent again, the same under the same ids. wrote
// says whether there was anything to store.
func (p *Publisher) Publish(ctx context.Context, collect func() *Dirty) (wrote bool, err error) {
	queued, count := len(p.queue), p.count
	if err = p.publish(ctx, collect); err == nil {
		p.backoff = 0
	}
	return queued > 0 || p.count > count, err
}

func (p *Publisher) publish(ctx context.Context, collect func() *Dirty) error {
	if err := p.send(ctx); err != nil {
		return err
	}
	h := collect()
	if h == nil {
		return nil
	}
	if h.Bad != nil {
		return h.Bad
	}
	if h.Trace != "" {
		var span trace.Span
		ctx, span = p.tracer.Start(tracectx.With(ctx, h.Trace), "ps.flush", trace.WithSpanKind(trace.SpanKindProducer))
		defer span.End()
	}
	p.count++
	rows, variables := p.writer.Deltas(h)
	if err := errors.Join(p.enqueue(p.rows, tracectx.Of(ctx), rows), p.enqueue(p.vars, tracectx.Of(ctx), variables)); err != nil {
		return err
	}
	return p.send(ctx)
}

// Alone stores what was left over and then the delta that change makes, by itself; nil is
// none. It returns the sequence of it.
func (p *Publisher) Alone(ctx context.Context, change func() (*delta.Delta, error)) (seq uint64, err error) {
	if err := p.send(ctx); err != nil {
		return 0, err
	}
	d, err := change()
	if err != nil || d == nil {
		return 0, err
	}
	p.count++
	if err := p.enqueue(p.rows, "", []*delta.Delta{d}); err != nil {
		return 0, err
	}
	if err := p.send(ctx); err != nil {
		return 0, err
	}
	return p.at[p.rows], nil
}

// enqueue appends deltas of publication count.
func (p *Publisher) enqueue(subject, traceparent string, ds []*delta.Delta) error {
	groups, err := drafts(subject, fmt.Sprintf("%s/e%d/%d", subject, p.epoch, p.count), traceparent, ds)
	p.queue = append(p.queue, groups...)
	return err
}

// send stores the queue in order. ErrFenced is final; any other error may be tried
// again.
func (p *Publisher) send(ctx context.Context) error {
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

// conflict finds out why the sequence that g expects did not hold: a successor (ErrFenced), g itself
// stored by a call whose answer was lost, or the stream having discarded what was
// expected or holding what is no writer's, in which case the sequence to expect next is returned.
func (p *Publisher) conflict(ctx context.Context, g []bus.DeltaDraft) (seq uint64, stored bool, err error) {
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

// fenced is ErrFenced if a successor has taken the shard. What lies at sequence last of
// the subject is not this writer's; where nobody has followed it, it is a stranger's.
func (p *Publisher) fenced(ctx context.Context, subject string, last uint64) error {
	newest, err := p.newest(ctx)
	if err != nil {
		return err
	}
	if newest > p.epoch {
		return fmt.Errorf("%w: epoch %d has followed %d, delta %d on %s is another's", ErrFenced, newest, p.epoch, last, subject)
	}
	return nil
}

// Unfenced makes sure that nobody else has written since this writer last did.
func (p *Publisher) Unfenced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	for _, subject := range p.Subjects() {
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

// Takeover is the first message of an epoch.
func (p *Publisher) Takeover(subject string, step uint64) (bus.DeltaDraft, error) {
	data, err := proto.Marshal(&delta.Delta{
		Job: p.writer.Job, Shard: p.writer.Shard, Shards: p.writer.Shards, Epoch: p.epoch, Step: step, Chunks: 1, Takeover: true,
	})
	return bus.DeltaDraft{
		Subject: subject, ID: fmt.Sprintf("%s/e%d/takeover", subject, p.epoch), Data: data,
	}, err
}

// Delay puts the next try of a failed publication off, further each time, and returns by how
// much.
func (p *Publisher) Delay() time.Duration {
	p.backoff = min(max(2*p.backoff, 50*time.Millisecond), maxBackoff)
	p.retryAt = time.Now().Add(p.backoff)
	return p.backoff
}

// Delayed says whether it is too early for that try.
func (p *Publisher) Delayed() bool { return time.Now().Before(p.retryAt) }
