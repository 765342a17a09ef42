package modelserver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

const (
	impressionQueue  = 16384 // records waiting; more are dropped and counted
	impressionBatch  = 512   // records of one write
	impressionLinger = 20 * time.Millisecond
	impressionWrite  = 10 * time.Second // longest one write may take
)

// impressions writes what was answered to Kafka, beside the answering: a full queue
// drops, since a prediction must not wait for its own record.
type impressions struct {
	topic     string
	container string
	write     func(ctx context.Context, recs ...kafka.Record) ([]kafka.Record, error)
	queue     chan *impression.Impression
	metrics   *metrics
	log       *slog.Logger
	attempts  *health.Attempts // at writing
}

// recorder collects the impressions of one request.
type recorder struct {
	requestID   string
	traceparent string
	to          *impressions
}

// want decides whether a request leaves impressions: those that ask for them, and a share
// of the others. An id alone asks for nothing, since gateways give one to every request.
func (p *impressions) want(c caller, traceparent string, rate float64) *recorder {
	if p == nil || !c.impressions && (rate <= 0 || mathrand.Float64() >= rate) {
		return nil
	}
	id := c.requestID
	if id == "" {
		id = newRequestID()
	}
	return &recorder{requestID: id, traceparent: traceparent, to: p}
}

func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand ends the process rather than fail
	return hex.EncodeToString(b[:])
}

// take copies out of the scratch what the answer stood on, and queues it.
func (r *recorder) take(m *entryModel, sc *scratch, denseSeq uint64, scores []float32) {
	now := time.Now().UnixMicro()
	for row := range scores {
		rec := &impression.Impression{
			RequestID: r.requestID, Row: row, Model: m.model, Version: m.version, TimeUS: now,
			Inputs: make(map[string]int64, len(m.features)), Score: scores[row],
			Rows: make([]impression.Row, len(m.features)), DenseSeq: denseSeq,
			Traceparent: r.traceparent, Container: r.to.container,
		}
		for i := range m.features {
			f := &m.features[i]
			id := sc.batch.IDs(f.index, row)[0]
			shard, block, at := sc.batch.Place(f.index, row, 0)
			rec.Inputs[f.name] = signature(id)
			rec.Rows[i] = impression.Row{
				Feature: f.name, Table: f.table, ID: id, Shard: uint32(shard),
				Replica: sc.shards[shard].asked(block, at).from.replica, SyncSeq: sc.batch.Blocks(shard)[block].Seqs[at],
			}
		}
		select {
		case r.to.queue <- rec:
		default:
			r.to.metrics.impressions.WithLabelValues("dropped").Add(float64(len(scores) - row))
			return
		}
	}
}

// signature is the id within its slot, as it came in.
func signature(fid int64) int64 { return fid & modelspec.MaxID }

// run writes batches until ctx ends, then what is queued, within drain.
func (p *impressions) run(ctx context.Context, drain time.Duration) {
	last := context.WithoutCancel(ctx)
	batch := make([]kafka.Record, 0, impressionBatch)
	for {
		select {
		case i := <-p.queue:
			batch = p.add(batch, i)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(last, drain)
			defer cancel()
			for {
				batch = p.fill(last, batch, 0)
				if len(batch) == 0 {
					return
				}
				batch = p.flush(last, batch)
			}
		}
		batch = p.fill(ctx, batch, impressionLinger)
		// A write that ctx interrupts would be lost: it gets its own time.
		write, cancel := context.WithTimeout(last, impressionWrite)
		batch = p.flush(write, batch)
		cancel()
	}
}

// fill adds what is queued, and what comes within linger.
func (p *impressions) fill(ctx context.Context, batch []kafka.Record, linger time.Duration) []kafka.Record {
	var over <-chan time.Time
	if linger > 0 {
		t := time.NewTimer(linger)
		defer t.Stop()
		over = t.C
	}
	for len(batch) < impressionBatch {
		select {
		case i := <-p.queue:
			batch = p.add(batch, i)
			continue
		default:
		}
		if over == nil {
			break
		}
		select {
		case i := <-p.queue:
			batch = p.add(batch, i)
		case <-over:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

func (p *impressions) add(batch []kafka.Record, i *impression.Impression) []kafka.Record {
	value, err := impression.Encode(i)
	if err != nil {
		p.metrics.impressions.WithLabelValues("failed").Inc()
		p.log.Warn("impression not written", "err", err)
		return batch
	}
	r := kafka.Record{Topic: p.topic, Partition: -1, Key: []byte(i.RequestID), Value: value}
	if i.Traceparent != "" {
		r.Headers = map[string]string{"traceparent": i.Traceparent}
	}
	return append(batch, r)
}

func (p *impressions) flush(ctx context.Context, batch []kafka.Record) []kafka.Record {
	if len(batch) == 0 {
		return batch
	}
	outcome := "written"
	if _, err := p.write(ctx, batch...); err != nil {
		outcome = "failed"
		p.log.Warn("impressions not written", "records", len(batch), "err", err)
		p.attempts.Failed(fmt.Errorf("they are lost while topic %s cannot be written: %w", p.topic, err))
	} else {
		p.attempts.Succeeded()
	}
	p.metrics.impressions.WithLabelValues(outcome).Add(float64(len(batch)))
	clear(batch)
	return batch[:0]
}
