package archive_test

import (
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/projections/registry"
)

// BenchmarkRebuild folds a view from an archive: of events that it folds, and of those
// of others.
func BenchmarkRebuild(b *testing.B) {
	const n = 200_000
	m := mem.New()
	defer m.Close()
	var drafts []bus.Draft
	for i := range n {
		drafts = append(drafts, bus.Draft{Subject: events.Join("b", "container", fmt.Sprint("c", i%100)), Expect: bus.Any,
			Event: &container.Event{Body: &container.Event_ResourceReported{ResourceReported: &container.ResourceReported{Memory: int64(i), Cpu: 0.5}}}})
		if len(drafts) == 1000 {
			if _, err := m.Log().Append(soon(b), drafts...); err != nil {
				b.Fatal(err)
			}
			drafts = drafts[:0]
		}
	}
	a := write(b, b.TempDir(), m.Log(), n, archive.WriterOptions{})
	for name, contexts := range map[string][]string{"folded": {"container"}, "of others": {"model"}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s := registry.Fleet.New()
				if _, err := a.Replay(soon(b), 1, 0, contexts, func(r events.Recorded) error {
					s = registry.Fleet.Fold(s, r)
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}
