package rows

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
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/internal/tracectx"
)

// MaxShards bounds the training shards that an export may claim to come from.
const MaxShards = 1 << 16

// Feed keeps one servable of a sub-model current from MONOLITH_SYNC. It belongs to
// the goroutine that runs it; its exported fields are set before that.
type Feed struct {
	BZID, Job string
	// Dense follows the variables of the tower; otherwise it is the rows.
	Dense bool
	// Shards is how many training shards the export has.
	Shards uint32
	// Contained is the newest sequence that the export holds, by training shard.
	Contained map[uint32]uint64
	// Epochs is the highest epoch seen, by training shard.
	Epochs map[uint32]uint64
	// Next is the sequence to go on from.
	Next uint64
	// Apply takes one chunk.
	Apply func(d *delta.Delta, seq uint64, at time.Time) error
	// Served is told of what has become visible.
	Served func(Flush)
	// Written is the newest epoch that the log says of a training shard; ok: it says any.
	Written func(ctx context.Context, job string, shard uint32) (epoch uint64, ok bool, err error)

	// Bus, Metrics, Tracer and Log are the process'.
	Bus     bus.Deltas
	Metrics *Metrics
	Tracer  trace.Tracer
	Log     *slog.Logger
	// Health is told what does not work, under the name of Problem.
	Health  *health.State
	Problem string

	need   map[string]uint64 // subject -> sequence to reach before the model may serve
	caught chan struct{}     // closed then
	behind Flush             // the newest one applied before that
}

// Caught is closed once all that the stream held at FindEnd is applied.
func (f *Feed) Caught() <-chan struct{} { return f.caught }

// Flush is what one training shard published at once, by its last chunk.
type Flush struct {
	Seq uint64
	At  time.Time
}

// subject is where training shard k publishes what this feed reads.
func (f *Feed) subject(shard string) string {
	s := bus.DeltaSubject(f.BZID, f.Job, shard)
	if f.Dense {
		s += ".dense"
	}
	return s
}

// FindEnd finds out how far the stream is now, shard by shard, because the end of the whole
// stream may belong to another job. Once past it the model has caught up.
func (f *Feed) FindEnd(ctx context.Context) error {
	f.need = map[string]uint64{}
	for k := range f.Shards {
		s := f.subject(fmt.Sprint(k))
		last, err := f.Bus.LastOf(ctx, s)
		if err != nil {
			return fmt.Errorf("find the end of %s: %w", s, err)
		}
		if last >= f.Next {
			f.need[s] = last
		}
	}
	f.caught = make(chan struct{})
	if len(f.need) == 0 {
		close(f.caught)
	}
	return nil
}

// Follow applies deltas until ctx ends (nil) or the stream no longer holds what comes
// next (bus.ErrTrimmed).
func (f *Feed) Follow(ctx context.Context) error {
	pause := retry.New(200*time.Millisecond, 5*time.Second)
	attempts := f.Health.Attempts(f.Problem)
	for {
		from := f.Next
		works := time.AfterFunc(followWorks, func() { f.Health.OK(f.Problem) })
		err := f.Bus.Follow(ctx, f.Next, 0, []string{f.subject("*")}, func(d bus.StoredDelta) error {
			return f.handle(ctx, d)
		})
		worked := !works.Stop()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, bus.ErrTrimmed) {
			return err
		}
		if worked || f.Next > from {
			attempts.Succeeded()
			pause.Reset()
		}
		f.Log.Warn("following deltas was interrupted; going on", "next", f.Next, "err", err)
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
func (f *Feed) handle(ctx context.Context, d bus.StoredDelta) error {
	if d.Seq < f.Next {
		return nil // redelivered
	}
	outcome, err := f.take(ctx, d)
	if err != nil {
		return err
	}
	f.Next = d.Seq + 1
	f.Metrics.deltas.WithLabelValues(outcome).Inc()
	if want, ok := f.need[d.Subject]; ok && d.Seq >= want {
		delete(f.need, d.Subject)
		if len(f.need) == 0 {
			if f.behind.Seq > 0 {
				f.Served(f.behind)
			}
			close(f.caught)
		}
	}
	return nil
}

// take applies one message and says what became of it. What cannot be applied is
// counted and reported; the stream is the record of it.
func (f *Feed) take(ctx context.Context, d bus.StoredDelta) (outcome string, err error) {
	if d.Traceparent != "" {
		var span trace.Span
		_, span = f.Tracer.Start(tracectx.With(ctx, d.Traceparent), "modelserver.apply_delta",
			trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(attribute.Int64("sync.seq", int64(d.Seq)), attribute.String("sync.subject", d.Subject)))
		defer func() {
			span.SetAttributes(attribute.String("outcome", outcome))
			span.End()
		}()
	}
	var m delta.Delta
	if err := proto.Unmarshal(d.Data, &m); err != nil {
		f.Log.Error("delta skipped: it does not decode", "seq", d.Seq, "subject", d.Subject, "err", err)
		return "malformed", nil
	}
	k := m.GetShard()
	if k >= MaxShards || m.GetChunks() > 0 && m.GetChunk() >= m.GetChunks() {
		f.Log.Error("delta skipped: it contradicts itself", "seq", d.Seq, "shard", k, "chunk", m.GetChunk(), "chunks", m.GetChunks())
		return "malformed", nil
	}
	if d.Seq <= f.Contained[k] {
		return "contained", nil
	}
	if m.GetEpoch() < f.Epochs[k] {
		f.Log.Warn("delta skipped: a newer writer has taken over the shard", "seq", d.Seq, "shard", k, "epoch", m.GetEpoch(), "newest", f.Epochs[k])
		return "fenced", nil
	}
	if m.GetEpoch() > f.Epochs[k] && f.Written != nil {
		// An epoch that nobody took would fence every delta after it, for ever.
		newest, known, err := f.Written(ctx, f.Job, k)
		if err != nil {
			return "", err
		}
		if known && m.GetEpoch() > newest {
			f.Log.Error("delta skipped: nobody has taken over the shard in its epoch", "seq", d.Seq, "subject", d.Subject, "shard", k, "epoch", m.GetEpoch(), "newest", newest)
			return "forged", nil
		}
	}
	f.Epochs[k] = m.GetEpoch()
	if err := f.Apply(&m, d.Seq, d.Time); err != nil {
		f.Log.Error("delta could not be applied whole", "seq", d.Seq, "shard", k, "err", err)
		return "malformed", nil
	}
	if m.GetChunk()+1 >= m.GetChunks() {
		// What is made up for at a load becomes visible all at once: the newest of it
		// stands for the rest, or every load would look like a stall of the updates.
		if f.behind = (Flush{d.Seq, d.Time}); len(f.need) == 0 {
			f.Served(f.behind)
		}
	}
	return "applied", nil
}
