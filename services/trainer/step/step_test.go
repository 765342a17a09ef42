//go:build unix

package step

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
)

// A trainer's own part of a step of 64 ratings of the demo's model: to read them, plan their
// rows, compute and check the gradients. CPU time is the process's, with what its garbage costs.
func BenchmarkStep(b *testing.B) {
	const batch = 64
	e, err := New(modelspec.MovieRanking(), 2, batch)
	if err != nil {
		b.Fatal(err)
	}
	var recs []kafka.Record
	for i := range batch {
		recs = append(recs, kafka.Record{Offset: int64(i), Time: time.Unix(964982703, 0),
			Value: fmt.Appendf(nil, `{"userId":%d,"movieId":%d,"rating":%d.0,"timestamp":964982703}`, i*7%610, i*2467%168252, i%6)})
	}
	var values [][]float32
	for _, v := range e.Variables() {
		values = append(values, modelspec.InitVariable(e.Spec(), v))
	}
	w, err := e.Weights(1, values)
	if err != nil {
		b.Fatal(err)
	}
	s, lane := e.NewStep(), runtime.Lane{}
	for _, part := range []string{"load", "whole"} {
		b.Run(part, func(b *testing.B) {
			b.ReportAllocs()
			begin := cpuTime(b)
			for b.Loop() {
				if err := s.Load(Span{Recs: recs}); err != nil || s.Samples() != batch {
					b.Fatal(s.Samples(), err)
				}
				if part == "load" {
					continue
				}
				if _, err := e.Train(&lane, s.Batch, w); err != nil {
					b.Fatal(err)
				}
				if err := s.takeable(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-begin)/float64(b.N)/batch, "cpu-ns/rating")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
