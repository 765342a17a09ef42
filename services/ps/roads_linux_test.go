package ps

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/ps/pstest"
	"github.com/monolith-go/monolith/services/ps/state"
)

// BenchmarkRoads are lookups and applies of a DeepFM's step over each road: 13,309 rows of
// 16, 461,000 weights. cpu-us is what the whole process takes for one, both ends.
func BenchmarkRoads(b *testing.B) {
	spec, r := pstest.Wide()
	s, err := state.New(state.Config{Job: job, Shards: 1}, spec)
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Load(nil); err != nil {
		b.Fatal(err)
	}
	s.Resume(1, 0)
	pstest.Renew(r, rand.New(rand.NewPCG(2, 2)))
	r.From, r.To = 0, 0
	h := &rowServer{st: s, m: newMetrics(nil, Config{Job: job}), tracer: noop.NewTracerProvider().Tracer("")}
	ctx, stop := context.WithCancel(b.Context())
	local := rowwire.NewLocal()
	defer func() { stop() }()
	conns := map[string]rowwire.Conn{}
	for _, listen := range []string{"127.0.0.1:0", "unix://" + filepath.Join(b.TempDir(), "s")} {
		ln, err := rowwire.Listen(ctx, listen)
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- rowwire.Serve(ctx, ln, h, rowwire.Options{Local: local}) }()
		defer func() { stop(); <-done }()
		for _, p := range []*rowwire.Pool{rowwire.NewPool(nil), local.NewPool(nil)} {
			defer p.Close()
			c, err := p.Get(ctx, rowwire.Addr(ln.Addr()))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := c.Offsets(ctx, &rowwire.OffsetsRequest{Job: job}); err != nil {
				b.Fatal(err)
			}
			conns[c.Road()] = c
		}
	}
	for _, road := range []string{"tcp", "unix", "process"} {
		c := conns[road]
		if c == nil {
			b.Fatalf("no road %s", road)
		}
		measured := func(b *testing.B, do func() error) {
			before, n := cpu(), 0
			for b.Loop() {
				n++
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpu()-before).Microseconds())/float64(n), "cpu-us/op")
		}
		b.Run("lookup/"+road, func(b *testing.B) {
			q := &rowwire.LookupRequest{Model: job, Tables: []rowwire.TableIDs{{Table: "user", IDs: r.Tables[0].IDs}}}
			var res rowwire.LookupResponse
			rows := [][]float32{make([]float32, 16*len(r.Tables[0].IDs))}
			measured(b, func() error {
				res.Into(rows, nil)
				return c.LookupInto(ctx, q, &res)
			})
		})
		b.Run("apply/"+road, func(b *testing.B) {
			measured(b, func() error {
				r.From, r.To = r.To, r.To+512
				_, err := c.Apply(ctx, r)
				return err
			})
		})
		b.Run("dense/"+road, func(b *testing.B) {
			measured(b, func() error {
				_, err := c.Dense(ctx, &rowwire.DenseRequest{Job: job})
				return err
			})
		})
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
