package entry

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/process/prom"
)

const (
	impressionQueue  = 16384 // records waiting; more are dropped and counted
	impressionBatch  = 512   // records of one write
	impressionLinger = 20 * time.Millisecond
	impressionWrite  = 10 * time.Second // longest one write may take
)

// Impressions writes what was answered to Kafka, beside the answering: a full queue
// drops, since a prediction must not wait for its own record.
type Impressions struct {
	topic     string
	container string
	queue     chan *impression.Impression
	outcomes  *prometheus.CounterVec
	log       *slog.Logger
	attempts  *health.Attempts // at writing
	write     Write            // fixed by Run
}

// Recorder collects the impressions of one request.
type Recorder struct {
	// RequestID names the request in its impressions.
	RequestID   string
	traceparent string
	began       time.Time
	shadow      bool // nobody is answered
	to          *Impressions
}

// Shadow is a recorder of the same request for a score that answers nobody, from now on.
func (r *Recorder) Shadow() *Recorder {
	return &Recorder{RequestID: r.RequestID, traceparent: r.traceparent, began: time.Now(), shadow: true, to: r.to}
}

// NewImpressions counts in reg; Run writes what is recorded.
func NewImpressions(topic, container string, reg prometheus.Registerer, log *slog.Logger, attempts *health.Attempts) *Impressions {
	return &Impressions{
		topic: topic, container: container, log: log, attempts: attempts,
		queue: make(chan *impression.Impression, impressionQueue),
		outcomes: prom.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_modelserver_impression_total", Help: "Impressions by outcome: written, dropped because the queue was full, or failed."}, []string{"outcome"})),
	}
}

// Want decides whether a request leaves impressions: those that ask for them, and a share
// of the others; nil: it leaves none. A nil Impressions takes none. An id alone asks for nothing, since gateways give one to every request.
func (p *Impressions) Want(requestID string, asked bool, traceparent string, rate float64) *Recorder {
	if p == nil || !asked && (rate <= 0 || mathrand.Float64() >= rate) {
		return nil
	}
	if requestID == "" {
		requestID = newRequestID()
	}
	return &Recorder{RequestID: requestID, traceparent: traceparent, began: time.Now(), to: p}
}

func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand ends the process rather than fail
	return hex.EncodeToString(b[:])
}

// take copies out of the scratch what the answer stood on, and queues it. The request's rows begin
// with sample from.
func (r *Recorder) take(m *Model, in Input, sc *scratch, from int, denseSeq uint64, scores [][]float32) {
	now, texts := time.Now().UnixMicro(), m.textsOf(in)
	took := time.Since(r.began).Microseconds()
	for row, score := range scores[0] {
		rec := &impression.Impression{
			RequestID: r.RequestID, Row: row, Model: m.want.Model, Version: m.want.Serves, TimeUS: now, TookUS: took, Shadow: r.shadow,
			Inputs: make(map[string]impression.IDs, len(m.features)), Score: score,
			Rows: make([]impression.Row, 0, len(m.spec.GetFeatures())), DenseSeq: denseSeq,
			Traceparent: r.traceparent, Container: r.to.container,
		}
		if len(scores) > 1 {
			rec.Scores = make(map[string]float32, len(scores))
			for i, name := range m.outputs {
				rec.Scores[name] = scores[i][row]
			}
		}
		m.stoodOn(rec, sc, from+row, texts)
		select {
		case r.to.queue <- rec:
		default:
			r.to.outcomes.WithLabelValues("dropped").Add(float64(len(scores[0]) - row))
			return
		}
	}
}

// stoodOn notes what a sample gave and the rows that it read, crossed features' among them.
func (m *Model) stoodOn(rec *impression.Impression, sc *scratch, sample int, texts map[string]map[int64]string) {
	for i, f := range m.spec.GetFeatures() {
		ids, reads := sc.batch.IDs(i, sample), sc.batch.Reads(i, sample)
		rows := modelspec.VocabularyOf(f).Rows()
		listed := ids[:min(len(ids), impression.MaxFeatureRows/rows, (impression.MaxInputs-len(rec.Rows))/rows)]
		if more := len(ids) - len(listed); more > 0 {
			if rec.More == nil {
				rec.More = map[string]int{}
			}
			rec.More[f.GetName()] = more
		}
		given := make(impression.IDs, 0, len(listed))
		for _, id := range listed {
			given = append(given, signature(id))
		}
		for k, id := range reads[:len(listed)*rows] {
			shard, block, at := sc.batch.Place(i, sample, k)
			rec.Rows = append(rec.Rows, impression.Row{
				Feature: f.GetName(), Table: f.GetTable(), ID: id, Text: texts[f.GetName()][signature(ids[k/rows])], Shard: uint32(shard),
				Replica: sc.asked.Replica(sc.nth, shard, block, at), SyncSeq: sc.batch.Blocks(shard)[block].Seqs[at],
			})
		}
		if len(f.GetCross()) == 0 {
			rec.Inputs[f.GetName()] = given
		}
	}
	for i, f := range m.floats {
		if rec.Floats == nil {
			rec.Floats = make(map[string][]float32, len(m.floats))
		}
		values := sc.batch.Floats(i, sample)
		rec.Floats[f.name] = slices.Clone(values[:min(len(values), impression.MaxFeatureRows)])
	}
}

// signature is the id within its slot, as it came in.
func signature(fid int64) int64 { return fid & modelspec.MaxID }

// Write sends records, as [kafka.Writer.Write] does.
type Write func(ctx context.Context, recs ...kafka.Record) ([]kafka.Record, error)

// Run writes batches until ctx ends, then what is queued, within drain.
func (p *Impressions) Run(ctx context.Context, write Write, drain time.Duration) {
	p.write = write
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
		within, cancel := context.WithTimeout(last, impressionWrite)
		batch = p.flush(within, batch)
		cancel()
	}
}

// fill adds what is queued, and what comes within linger.
func (p *Impressions) fill(ctx context.Context, batch []kafka.Record, linger time.Duration) []kafka.Record {
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

func (p *Impressions) add(batch []kafka.Record, i *impression.Impression) []kafka.Record {
	value, err := impression.Encode(i)
	if err != nil {
		p.outcomes.WithLabelValues("failed").Inc()
		p.log.Warn("impression not written", "err", err)
		return batch
	}
	r := kafka.Record{Topic: p.topic, Partition: -1, Key: []byte(i.RequestID), Value: value}
	if i.Traceparent != "" {
		r.Headers = map[string]string{"traceparent": i.Traceparent}
	}
	return append(batch, r)
}

func (p *Impressions) flush(ctx context.Context, batch []kafka.Record) []kafka.Record {
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
	p.outcomes.WithLabelValues(outcome).Add(float64(len(batch)))
	clear(batch)
	return batch[:0]
}
