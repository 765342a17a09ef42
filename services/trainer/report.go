package trainer

import (
	"context"
	"math"
	"time"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/services/trainer/figures"
)

// reportEvery is the time between looks at the figures.
const reportEvery = 10 * time.Second

// lastReportTimeout bounds the report at the end.
const lastReportTimeout = 2 * time.Second

// report appends the figures as facts while something is learnt.
func (s *Server) report(ctx context.Context) error {
	t := time.NewTicker(s.reportEvery)
	defer t.Stop()
	var was figures.Figures
	last := time.Now()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return s.lastReport(ctx, was, last)
		}
		now := time.Now()
		f := s.m.meter.Figures()
		if f.Samples == was.Samples && f.Dropped == was.Dropped {
			last = now
			continue
		}
		rate := float64(f.Samples-was.Samples) / now.Sub(last).Seconds()
		was, last = f, now
		s.tellFigures(ctx, rate, f)
	}
}

// tellFigures shows and appends those that are known.
func (s *Server) tellFigures(ctx context.Context, rate float64, f figures.Figures) {
	var bodies []*training.Event
	for _, v := range append([]figures.Figure{{Name: "samples_per_second", Value: rate}}, f.Named()...) {
		if !math.IsNaN(v.Value) {
			s.m.figures.WithLabelValues(v.Name).Set(v.Value)
			bodies = append(bodies, &training.Event{Body: &training.Event_MetricReported{MetricReported: &training.MetricReported{
				Name: v.Name, Value: v.Value, Samples: f.Samples, Step: f.Steps,
			}}})
		}
	}
	if err := s.tell(ctx, bodies...); err != nil && ctx.Err() == nil {
		s.log.Warn("metrics were not reported", "err", err)
	}
}

// lastReport tells the figures once more where the job ends with its files: whoever began it reads
// in them what came of it.
func (s *Server) lastReport(ctx context.Context, was figures.Figures, last time.Time) error {
	if !s.cfg.Files.Given() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastReportTimeout)
	defer cancel()
	f := s.m.meter.Figures()
	s.tellFigures(ctx, float64(f.Samples-was.Samples)/time.Since(last).Seconds(), f)
	return nil
}
