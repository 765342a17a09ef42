package replicaregistry

import (
	"fmt"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/projections/znode"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

// BenchmarkProposals is creates of 100 bytes, 1000 of them waiting at any time, on
// JetStream with an fsync before each answer.
func BenchmarkProposals(b *testing.B) {
	srv, err := jetstream.StartServer(jetstream.ServerConfig{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = srv.Close() })
	var log bus.Bus
	if log, err = jetstream.Connect(b.Context(), jetstream.Config{Server: srv, BZID: controltest.BZID}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = log.Close() })
	s := newScribe(b, log)
	s.leads(b)
	data := fmt.Sprintf("%0100d", 0)
	window := make(chan struct{}, 1000)
	var wg sync.WaitGroup
	i := 0
	b.ResetTimer()
	for b.Loop() {
		i++
		window <- struct{}{}
		wg.Add(1)
		s.Propose(write(0, makeNode(fmt.Sprintf("/n%09d", i), data, 0)), func(_ uint64, o *znode.Outcome, err error) {
			if err != nil || o.Code != 0 {
				b.Error(o, err)
			}
			<-window
			wg.Done()
		})
	}
	wg.Wait()
}
