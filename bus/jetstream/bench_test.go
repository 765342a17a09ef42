//go:build !nobench

package jetstream_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/measure"
	"github.com/monolith-go/monolith/events"
)

// BenchmarkAppend is an append of one event: single callers and many, beside the same
// bytes published raw, one after another, to the same stream.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 256, 1024} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			bus, _ := benchBus(b)
			b.ResetTimer()
			if err := measure.Append(b.Context(), bus, callers, b.N); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
		})
	}
	for _, pending := range []int{1, 64, 256} {
		b.Run(fmt.Sprint("raw,pending=", pending), func(b *testing.B) {
			_, nc := benchBus(b)
			b.ResetTimer()
			if err := measure.RawPublish(b.Context(), nc, pending, b.N); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
		})
	}
}

// BenchmarkReplay is a replay of the log, beside a raw ordered consumer of nats.go.
func BenchmarkReplay(b *testing.B) {
	bus, nc := benchBus(b)
	const n = 50_000
	if err := measure.Append(b.Context(), bus, 1024, n); err != nil {
		b.Fatal(err)
	}
	b.Run("decoded", func(b *testing.B) {
		for b.Loop() {
			if err := bus.Log().Follow(b.Context(), 1, n, func(events.Recorded) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("raw ordered consumer", func(b *testing.B) {
		for b.Loop() {
			if err := measure.RawReplay(b.Context(), nc, n); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "events/s")
	})
}

func benchBus(b *testing.B) (*jetstream.Bus, *nats.Conn) {
	b.Helper()
	s := startServer(b, b.TempDir(), 0)
	bus, err := jetstream.Connect(context.Background(), jetstream.Config{URL: s.URL()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := bus.Close(); err != nil {
			b.Error(err)
		}
	})
	nc, err := nats.Connect(s.URL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	return bus, nc
}
