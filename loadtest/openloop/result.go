package openloop

import (
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/monolith-go/monolith/loadtest/report"
)

const (
	minLatency = 1          // microseconds
	maxLatency = 60_000_000 // one minute; more counts as that
	// maxLateness is the part of the median latency that the generator's own lateness may be.
	maxLateness = 0.1
)

// NewHistogram holds latencies in microseconds.
func NewHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(minLatency, maxLatency, 3) }

// Count adds a latency to a histogram.
func Count(h *hdrhistogram.Histogram, took time.Duration) {
	_ = h.RecordValue(min(max(took.Microseconds(), minLatency), maxLatency)) // within its range
}

// Recorder takes answers in. One goroutine uses it.
type Recorder struct {
	start, last time.Time
	calls       int64
	errors      map[string]int64
	took, late  *hdrhistogram.Histogram
	second      *hdrhistogram.Histogram
	at          int                                               // the running second
	flushed     func(second int, h *hdrhistogram.Histogram) error // nil: nobody asks
	seconds     []report.LatencyPoint
	err         error // the first of flushed
}

// NewRecorder begins now. flushed, which may be nil, gets the histogram of each second that had an answer.
func NewRecorder(start time.Time, flushed func(second int, h *hdrhistogram.Histogram) error) *Recorder {
	return &Recorder{start: start, last: start, errors: map[string]int64{}, took: NewHistogram(), late: NewHistogram(), second: NewHistogram(), flushed: flushed}
}

// Observe takes one answer in.
func (r *Recorder) Observe(a Answer) {
	r.calls++
	if end := a.Due.Add(a.Took); end.After(r.last) {
		r.last = end
	}
	if a.Code != "" {
		r.errors[a.Code]++
		return
	}
	if s := int(a.Due.Sub(r.start) / time.Second); s > r.at { // a late answer counts in the running second
		r.flush()
		r.at = s
	}
	Count(r.took, a.Took)
	Count(r.second, a.Took)
	Count(r.late, a.Late)
}

func (r *Recorder) flush() {
	n := r.second.TotalCount()
	if n == 0 {
		return
	}
	r.seconds = append(r.seconds, report.LatencyPoint{Second: float64(r.at), Count: n, P50: Ms(r.second, 50), P99: Ms(r.second, 99)})
	if r.flushed != nil && r.err == nil {
		r.err = r.flushed(r.at, r.second)
	}
	r.second.Reset()
}

// Result is what a run has shown. Latencies are in milliseconds, from when each call was due.
type Result struct {
	Offered  report.Figure    `json:"offered"`  // calls per second that fell due
	Achieved report.Figure    `json:"achieved"` // answered per second
	Calls    int64            `json:"calls"`
	Answered int64            `json:"answered"`
	Errors   map[string]int64 `json:"errors_by_code"`
	Seconds  report.Figure    `json:"seconds"`
	Mean     report.Figure    `json:"mean_ms"`
	P50      report.Figure    `json:"p50_ms"`
	P90      report.Figure    `json:"p90_ms"`
	P99      report.Figure    `json:"p99_ms"`
	P999     report.Figure    `json:"p99_9_ms"`
	Max      report.Figure    `json:"max_ms"`
	LateP50  report.Figure    `json:"late_p50_ms"` // of the generator itself
	LateP99  report.Figure    `json:"late_p99_ms"`
	Valid    bool             `json:"valid"`
	Why      string           `json:"invalid,omitempty"`

	Spread   []report.Percentile   `json:"spread"`
	BySecond []report.LatencyPoint `json:"by_second"`

	took *hdrhistogram.Histogram
}

// Result ends the recording. The error is that of whoever was given the seconds.
func (r *Recorder) Result() (Result, error) {
	r.flush()
	res := Of(r.took)
	res.Calls, res.Errors, res.BySecond = r.calls, r.errors, r.seconds
	if seconds := r.last.Sub(r.start).Seconds(); seconds > 0 {
		res.Seconds, res.Offered, res.Achieved = report.Figure(seconds), report.Figure(float64(r.calls)/seconds), report.Figure(float64(res.Answered)/seconds)
	}
	res.LateP50, res.LateP99 = Ms(r.late, 50), Ms(r.late, 99)
	switch {
	case res.Answered == 0:
		res.Why = "no call was answered"
	case res.LateP50 > maxLateness*res.P50:
		res.Why = fmt.Sprintf("the generator itself was late by %.3f ms in the median, more than a tenth of the median latency of %.3f ms: give it a processor, or a lower rate", res.LateP50, res.P50)
	}
	res.Valid = res.Why == ""
	return res, r.err
}

// Of are the figures of a histogram alone.
func Of(h *hdrhistogram.Histogram) Result {
	none := report.Unknown()
	res := Result{
		Offered: none, Achieved: none, Seconds: none, LateP50: none, LateP99: none, Errors: map[string]int64{}, Valid: true,
		Answered: h.TotalCount(), Calls: h.TotalCount(), Mean: none, took: h,
		P50: Ms(h, 50), P90: Ms(h, 90), P99: Ms(h, 99), P999: Ms(h, 99.9), Max: Ms(h, 100),
	}
	if res.Answered > 0 {
		res.Mean = report.Figure(h.Mean() / 1000)
		for _, p := range [...]float64{0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99, 100} {
			if p <= 99 || p == 100 || float64(res.Answered)*(100-p)/100 >= 1 { // no percentile finer than one call
				res.Spread = append(res.Spread, report.Percentile{Percent: p, Ms: float64(Ms(h, p))})
			}
		}
	}
	return res
}

// At is any percentile of the latencies.
func (r Result) At(percent float64) report.Figure { return Ms(r.took, percent) }

// Ms is a percentile of a histogram in milliseconds.
func Ms(h *hdrhistogram.Histogram, percent float64) report.Figure {
	if h == nil || h.TotalCount() == 0 {
		return report.Unknown()
	}
	return report.Figure(float64(h.ValueAtPercentile(percent)) / 1000)
}

// Text writes the result for people.
func (r Result) Text(w io.Writer) error {
	_, err := fmt.Fprintf(w, "offered %s/s, achieved %s/s, %d calls in %s s\np50 %s ms, p90 %s, p99 %s, p99.9 %s, max %s; generator late by %s ms in the median, p99 %s\n",
		report.Number(r.Offered), report.Number(r.Achieved), r.Calls, report.Number(r.Seconds), report.Number(r.P50), report.Number(r.P90), report.Number(r.P99), report.Number(r.P999), report.Number(r.Max), report.Number(r.LateP50), report.Number(r.LateP99))
	if err == nil && len(r.Errors) > 0 {
		_, err = fmt.Fprintf(w, "failed: %v\n", r.Errors)
	}
	if err == nil && !r.Valid {
		_, err = fmt.Fprintf(w, "INVALID: %s\n", r.Why)
	}
	return err
}
