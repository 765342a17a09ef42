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
	"github.com/monolith-go/monolith/internal/tracectx"
)

// maxShards bounds the training shards that an export may claim to come from.
const maxShards = 1 << 16

// feed keeps one generation of a sub-model current from MONOLITH_SYNC. It belongs to
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

	need   map[string]uint64 // subject -> sequence to reach before the model may serve
	caught chan struct{}     // closed then
	behind flush             // the newest one applied before that

	bus     bus.Deltas
	metrics *metrics
	tracer  trace.Tracer
	log     *slog.Logger
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

// aim finds out how far the stream is now, shard by shard, because the end of the whole
// stream may belong to another job. Once past it the model has caught up.
func (f *feed) aim(ctx context.Context) error {
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
	for {
		err := f.bus.Follow(ctx, f.next, 0, []string{f.subject("*")}, func(d bus.StoredDelta) error {
			f.handle(ctx, d)
			return nil
		})
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, bus.ErrTrimmed) {
			return err
		}
		f.log.Warn("following deltas was interrupted; going on", "next", f.next, "err", err)
		if !sleep(ctx, 200*time.Millisecond) {
			return nil
		}
	}
}

func (f *feed) handle(ctx context.Context, d bus.StoredDelta) {
	if d.Seq < f.next {
		return // redelivered
	}
	f.next = d.Seq + 1
	outcome := f.take(ctx, d)
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
}

// take applies one message and says what became of it. What cannot be applied is
// counted and reported; the stream is the record of it.
func (f *feed) take(ctx context.Context, d bus.StoredDelta) (outcome string) {
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
		return "malformed"
	}
	k := m.GetShard()
	if k >= maxShards || m.GetChunks() > 0 && m.GetChunk() >= m.GetChunks() {
		f.log.Error("delta skipped: it contradicts itself", "seq", d.Seq, "shard", k, "chunk", m.GetChunk(), "chunks", m.GetChunks())
		return "malformed"
	}
	if d.Seq <= f.contained[k] {
		return "contained"
	}
	if m.GetEpoch() < f.epochs[k] {
		f.log.Warn("delta skipped: a newer writer has taken over the shard", "seq", d.Seq, "shard", k, "epoch", m.GetEpoch(), "newest", f.epochs[k])
		return "fenced"
	}
	f.epochs[k] = m.GetEpoch()
	if err := f.apply(&m, d.Seq, d.Time); err != nil {
		f.log.Error("delta could not be applied whole", "seq", d.Seq, "shard", k, "err", err)
		return "malformed"
	}
	if m.GetChunk()+1 >= m.GetChunks() {
		// What is made up for at a load becomes visible all at once: the newest of it
		// stands for the rest, or every load would look like a stall of the updates.
		if f.behind = (flush{d.Seq, d.Time}); len(f.need) == 0 {
			f.served(f.behind)
		}
	}
	return "applied"
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// signalSubject is where a container says which deltas it serves.
func signalSubject(bzid, container string) string {
	return bus.PulseSubject(bzid, "applied", container)
}
