package figures

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/events/training"
)

// Samples a second are those since the last report, also in the report at the end; nothing is
// reported while nothing is learnt.
func TestSamplesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []float64
		r := &Reporter{
			Meter: New(), Every: 10 * time.Second, AtEnd: true, Log: slog.New(slog.DiscardHandler),
			Shown: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "figures"}, []string{"name"}),
			Tell: func(_ context.Context, facts ...*training.Event) error {
				for _, f := range facts {
					if m := f.GetMetricReported(); m.GetName() == "samples_per_second" {
						told = append(told, m.GetValue())
					}
				}
				return nil
			},
		}
		learns := func(n uint64) {
			r.Meter.mu.Lock()
			r.Meter.total += n
			r.Meter.mu.Unlock()
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		learns(100)
		<-time.After(11 * time.Second) // a report
		<-time.After(10 * time.Second) // nothing was learnt
		learns(50)
		<-time.After(10 * time.Second) // a report of ten seconds
		learns(30)
		<-time.After(4 * time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if len(told) != 3 || told[0] != 10 || told[1] != 5 || told[2] != 6 {
			t.Errorf("%v samples a second, want 10, 5 and 6", told)
		}
	})
}
