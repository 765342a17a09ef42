package modelserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/internal/tracectx"
)

// maxShards bounds the training shards that an export may claim to come from.
const maxShards = 1 << 16

// feed keeps one servable of a sub-model current from MONOLITH_SYNC. It belongs to
// the goroutine that runs it.
type feed struct {
	bzid, job string
	dense     bool
	shards    uint32            // training shards of the export
	contained map[uint32]uint64 // training shard -> newest sequence that the export holds
	epochs    map[uint32]uint64 // training shard -> highest epoch seen
	next      uint64            // sequence to go on from
	apply     func(d *delta.Delta, seq uint64, at time.Time) error
	served    func(flush) // it is visible
	// written is the newest epoch that the log says of a training shard; ok: it says any.
	written func(ctx context.Context, job string, shard uint32) (epoch uint64, ok bool, err error)

	need   map[string]uint64 // subject -> sequence to reach before the model may serve
	caught chan struct{}     // closed then
	behind flush             // the newest one applied before that

	bus     bus.Deltas
	metrics *metrics
	tracer  trace.Tracer
	log     *slog.Logger
	health  *health.State
	problem string // its name there
}

// flush is what one training shard published at once, by its last chunk.
type flush struct {
	seq uint64
	at  time.Time
}

// subject is where training shard k publishes what this feed reads.
func (f *feed) subject(shard string) string {
	s := bus.DeltaSubject(f.bzid, f.job, shard)
	if f.dense {
		s += ".dense"
	}
	return s
}

// findEnd finds out how far the stream is now, shard by shard, because the end of the whole
// stream may belong to another job. Once past it the model has caught up.
func (f *feed) findEnd(ctx context.Context) error {
	f.need = map[string]uint64{}
	for k := range f.shards {
		s := f.subject(fmt.Sprint(k))
		last, err := f.bus.LastOf(ctx, s)
		if err != nil {
			return fmt.Errorf("find the end of %s: %w", s, err)
		}
		if last >= f.next {
			f.need[s] = last
		}
	}
	f.caught = make(chan struct{})
	if len(f.need) == 0 {
		close(f.caught)
	}
	return nil
}

// follow applies deltas until ctx ends (nil) or the stream no longer holds what comes
// next (bus.ErrTrimmed).
func (f *feed) follow(ctx context.Context) error {
	pause := retry.New(200*time.Millisecond, 5*time.Second)
	attempts := f.health.Attempts(f.problem)
	for {
		from := f.next
		works := time.AfterFunc(followWorks, func() { f.health.OK(f.problem) })
		err := f.bus.Follow(ctx, f.next, 0, []string{f.subject("*")}, func(d bus.StoredDelta) error {
			return f.handle(ctx, d)
		})
		worked := !works.Stop()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, bus.ErrTrimmed) {
			return err
		}
		if worked || f.next > from {
			attempts.Succeeded()
			pause.Reset()
		}
		f.log.Warn("following deltas was interrupted; going on", "next", f.next, "err", err)
		attempts.Failed(err)
		if pause.Wait(ctx) != nil {
			return nil
		}
	}
}

// followWorks is after how long without an error following is taken to work: where nothing
// is published, nothing else tells.
const followWorks = 10 * time.Second

// handle fails only where it cannot be said yet what is to become of d.
func (f *feed) handle(ctx context.Context, d bus.StoredDelta) error {
	if d.Seq < f.next {
		return nil // redelivered
	}
	outcome, err := f.take(ctx, d)
	if err != nil {
		return err
	}
	f.next = d.Seq + 1
	f.metrics.deltas.WithLabelValues(outcome).Inc()
	if want, ok := f.need[d.Subject]; ok && d.Seq >= want {
		delete(f.need, d.Subject)
		if len(f.need) == 0 {
			if f.behind.seq > 0 {
				f.served(f.behind)
			}
			close(f.caught)
		}
	}
	return nil
}

// take applies one message and says what became of it. What cannot be applied is
// counted and reported; the stream is the record of it.
func (f *feed) take(ctx context.Context, d bus.StoredDelta) (outcome string, err error) {
	if d.Traceparent != "" {
		var span trace.Span
		_, span = f.tracer.Start(tracectx.With(ctx, d.Traceparent), "modelserver.apply_delta",
			trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(attribute.Int64("sync.seq", int64(d.Seq)), attribute.String("sync.subject", d.Subject)))
		defer func() {
			span.SetAttributes(attribute.String("outcome", outcome))
			span.End()
		}()
	}
	var m delta.Delta
	if err := proto.Unmarshal(d.Data, &m); err != nil {
		f.log.Error("delta skipped: it does not decode", "seq", d.Seq, "subject", d.Subject, "err", err)
		return "malformed", nil
	}
	k := m.GetShard()
	if k >= maxShards || m.GetChunks() > 0 && m.GetChunk() >= m.GetChunks() {
		f.log.Error("delta skipped: it contradicts itself", "seq", d.Seq, "shard", k, "chunk", m.GetChunk(), "chunks", m.GetChunks())
		return "malformed", nil
	}
	if d.Seq <= f.contained[k] {
		return "contained", nil
	}
	if m.GetEpoch() < f.epochs[k] {
		f.log.Warn("delta skipped: a newer writer has taken over the shard", "seq", d.Seq, "shard", k, "epoch", m.GetEpoch(), "newest", f.epochs[k])
		return "fenced", nil
	}
	if m.GetEpoch() > f.epochs[k] && f.written != nil {
		// An epoch that nobody took would fence every delta after it, for ever.
		newest, known, err := f.written(ctx, f.job, k)
		if err != nil {
			return "", err
		}
		if known && m.GetEpoch() > newest {
			f.log.Error("delta skipped: nobody has taken over the shard in its epoch", "seq", d.Seq, "subject", d.Subject, "shard", k, "epoch", m.GetEpoch(), "newest", newest)
			return "forged", nil
		}
	}
	f.epochs[k] = m.GetEpoch()
	if err := f.apply(&m, d.Seq, d.Time); err != nil {
		f.log.Error("delta could not be applied whole", "seq", d.Seq, "shard", k, "err", err)
		return "malformed", nil
	}
	if m.GetChunk()+1 >= m.GetChunks() {
		// What is made up for at a load becomes visible all at once: the newest of it
		// stands for the rest, or every load would look like a stall of the updates.
		if f.behind = (flush{d.Seq, d.Time}); len(f.need) == 0 {
			f.served(f.behind)
		}
	}
	return "applied", nil
}

// signalSubject is where a container says which deltas it serves.
func signalSubject(bzid, container string) string {
	return bus.PulseSubject(bzid, "applied", container)
}
