package ps

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/process/prom"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// metrics of one shard. Several shards of one process share the collectors and differ
// in the labels.
type metrics struct {
	applies     *prometheus.CounterVec // by outcome
	applyTime   prometheus.Observer    // failed ones too
	lookups     *prometheus.CounterVec // by outcome
	lookupTime  prometheus.Observer
	looked      prometheus.Counter
	fetches     *prometheus.CounterVec // of dense variables, by outcome
	fetchTime   prometheus.Observer
	rows        *prometheus.GaugeVec // by table
	backlog     prometheus.Gauge
	waiting     prometheus.Gauge
	expired     prometheus.Counter
	flushes     *prometheus.CounterVec // by outcome
	flushTime   prometheus.Observer
	epoch, step prometheus.Gauge
	machine     prometheus.Gauge

	looking, fetching, applying tally // since the process began
}

func newMetrics(r prometheus.Registerer, cfg Config) *metrics {
	own := prometheus.Labels{"job": cfg.Job, "shard": fmt.Sprint(cfg.Shard)}
	m := new(metrics)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prom.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "monolith_ps_" + name, Help: help}, append([]string{"job", "shard"}, labels...))).MustCurryWith(own)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prom.Register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "monolith_ps_" + name, Help: help}, append([]string{"job", "shard"}, labels...))).MustCurryWith(own)
	}
	seconds := func(name, help string) prometheus.Observer {
		return prom.Register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "monolith_ps_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(25e-6, 2.5, 14),
		}, []string{"job", "shard"})).With(own)
	}
	m.applies = counter("applies_total", "Ranges by what became of them.", "outcome")
	m.applyTime = seconds("apply_seconds", "Time of an apply, refused ones included.")
	m.lookups = counter("lookups_total", "Lookups of rows by what became of them.", "outcome")
	m.lookupTime = seconds("lookup_seconds", "Time of a lookup, refused ones included.")
	m.looked = counter("lookup_rows_total", "Rows answered.").WithLabelValues()
	m.fetches = counter("dense_total", "Fetches of dense variables by what became of them.", "outcome")
	m.fetchTime = seconds("dense_seconds", "Time of a fetch of dense variables, refused ones included.")
	m.rows = gauge("rows", "Rows of a table.", "table")
	m.backlog = gauge("touched_rows", "Rows that wait to be published.").WithLabelValues()
	m.waiting = gauge("waiting_rows", "Rows that wait for their table's interval.").WithLabelValues()
	m.expired = counter("expired_rows_total", "Rows removed because nothing had updated them for too long.").WithLabelValues()
	m.flushes = counter("flushes_total", "Publications by what became of them.", "outcome")
	m.flushTime = seconds("flush_seconds", "Time of a publication, failed ones included.")
	m.epoch = gauge("epoch", "Epoch of the shard's writer.").WithLabelValues()
	m.step = gauge("step", "Applies so far.").WithLabelValues()
	m.machine = gauge("machine_healthy", "1 while the machine passes its checks, 0 while it does not: then the job pauses.").WithLabelValues()
	m.machine.Set(1)
	return m
}

func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return strings.ToLower(rowwire.CodeOf(err).String())
}

func (m *metrics) apply(took time.Duration, rows int, part bool, res *rowwire.ApplyResponse, err error) {
	m.applyTime.Observe(took.Seconds())
	m.applying.add(took, rows, err)
	o := outcome(err)
	if err == nil && !res.Applied {
		if o = "known"; part {
			o = "staged"
		}
	}
	m.applies.WithLabelValues(o).Inc()
}

func (m *metrics) lookup(took time.Duration, rows int, err error) {
	m.lookupTime.Observe(took.Seconds())
	m.looking.add(took, rows, err)
	m.lookups.WithLabelValues(outcome(err)).Inc()
	m.looked.Add(float64(rows))
}

func (m *metrics) fetch(took time.Duration, err error) {
	m.fetchTime.Observe(took.Seconds())
	m.fetching.add(took, 0, err)
	m.fetches.WithLabelValues(outcome(err)).Inc()
}

func (m *metrics) flush(took time.Duration, err error) {
	m.flushTime.Observe(took.Seconds())
	o := "ok"
	if err != nil {
		o = "failed"
	}
	m.flushes.WithLabelValues(o).Inc()
}
