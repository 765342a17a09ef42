package figures

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/events/training"
)

// lastTimeout bounds the report at the end.
const lastTimeout = 2 * time.Second

// Reporter shows a meter's figures, and tells them as facts, while something is learnt.
type Reporter struct {
	Meter *Meter
	Shown *prometheus.GaugeVec // by name, as the facts call them
	Tell  func(ctx context.Context, facts ...*training.Event) error
	Log   *slog.Logger
	Every time.Duration
	// Also, if any, has the figures that are known at each report, too.
	Also func(ctx context.Context, at time.Time, known []Figure)
	// AtEnd tells them once more at the end, where the job ends with its files: whoever began it
	// reads in them what came of it.
	AtEnd bool
}

// Run reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) error {
	t := time.NewTicker(r.Every)
	defer t.Stop()
	var was Figures
	last := time.Now()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			if r.AtEnd {
				r.last(ctx, was, last)
			}
			return nil
		}
		now := time.Now()
		f := r.Meter.Figures()
		if f.Samples == was.Samples && f.Dropped == was.Dropped {
			last = now
			continue
		}
		rate := float64(f.Samples-was.Samples) / now.Sub(last).Seconds()
		was, last = f, now
		r.tell(ctx, rate, f)
	}
}

// tell shows and appends those that are known.
func (r *Reporter) tell(ctx context.Context, rate float64, f Figures) {
	var bodies []*training.Event
	var known []Figure
	for _, v := range append([]Figure{{Name: "samples_per_second", Value: rate}}, f.Named()...) {
		if !math.IsNaN(v.Value) {
			known = append(known, v)
			r.Shown.WithLabelValues(v.Name).Set(v.Value)
			bodies = append(bodies, &training.Event{Body: &training.Event_MetricReported{MetricReported: &training.MetricReported{
				Name: v.Name, Value: v.Value, Samples: f.Samples, Step: f.Steps,
			}}})
		}
	}
	if err := r.Tell(ctx, bodies...); err != nil && ctx.Err() == nil {
		r.Log.Warn("metrics were not reported", "err", err)
	}
	if r.Also != nil {
		r.Also(ctx, time.Now(), known)
	}
}

func (r *Reporter) last(ctx context.Context, was Figures, last time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
	defer cancel()
	f := r.Meter.Figures()
	r.tell(ctx, float64(f.Samples-was.Samples)/time.Since(last).Seconds(), f)
}
