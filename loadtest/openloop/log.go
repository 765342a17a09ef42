package openloop

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Log writes the histogram of each second in HdrHistogram's log format, which its own tools read. A
// crash leaves whole lines and one cut one behind.
type Log struct {
	w     *hdrhistogram.HistogramLogWriter
	start time.Time
}

// NewLog writes the log's head.
func NewLog(w io.Writer, start time.Time, about string) (*Log, error) {
	l := &Log{hdrhistogram.NewHistogramLogWriter(w), start}
	ms := start.UnixMilli()
	l.w.SetBaseTime(0)
	return l, errors.Join(l.w.OutputLogFormatVersion(), l.w.OutputComment(about), l.w.OutputStartTime(ms), l.w.OutputLegend())
}

// Second adds a second.
func (l *Log) Second(second int, h *hdrhistogram.Histogram) error {
	from := l.start.Add(time.Duration(second) * time.Second).UnixMilli()
	h.SetStartTimeMs(from)
	h.SetEndTimeMs(from + 1000)
	return l.w.OutputIntervalHistogram(h)
}

// ReadLogs merges the intervals of all logs: those of several generators, or of several runs.
func ReadLogs(paths []string) (*hdrhistogram.Histogram, error) {
	all := NewHistogram()
	for _, path := range paths {
		if err := readLog(path, all); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if all.TotalCount() == 0 {
		return nil, fmt.Errorf("%v hold no answered call: are they logs that loadtest run --log has written?", paths)
	}
	return all, nil
}

func readLog(path string, into *hdrhistogram.Histogram) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r := hdrhistogram.NewHistogramLogReader(f)
	for {
		h, err := r.NextIntervalHistogram()
		if errors.Is(err, io.EOF) || err == nil && h == nil {
			return nil
		}
		if err != nil {
			return err
		}
		if dropped := into.Merge(h); dropped > 0 {
			return fmt.Errorf("%d latencies are longer than a minute", dropped)
		}
	}
}
