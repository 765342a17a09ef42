package replicaregistry

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/projections/zookeeper/client"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// BenchmarkCreate is creates of 100 bytes over the wire, pipelined by eight clients, with
// the given number waiting in all, at a whole registry on JetStream with an fsync before
// each answer. Clients, registry and log share the process, and so the CPU time.
func BenchmarkCreate(b *testing.B) {
	for _, waiting := range []int{1, 128, 1000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			h := openHarness(b, Config{ZK: ZKPort{MaxSessionTimeout: time.Minute}})
			const clients = 8
			per := max(waiting/clients, 1)
			var conns []*client.Conn
			for range min(clients, waiting) {
				c, err := client.Dial(h.ZKAddr(), wire.ConnectRequest{TimeoutMS: 60_000}, time.Hour)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = c.Close() })
				conns = append(conns, c)
			}
			data := []byte(fmt.Sprintf("%0100d", 0))
			acl := []wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}
			before := cpuTime(b)
			b.ResetTimer()
			var all sync.WaitGroup
			for i, c := range conns {
				all.Go(func() {
					mine := b.N / len(conns)
					if i < b.N%len(conns) {
						mine++
					}
					sent, got := 0, 0
					for got < mine {
						for sent < mine && sent-got < per {
							sent++
							q := wire.CreateRequest{Path: fmt.Sprintf("/n%d-%09d", i, sent), Data: data, ACL: acl}
							c.Send(wire.OpCreate, func(w *wire.Writer) { q.Encode(w, false) })
						}
						if err := c.Flush(); err != nil {
							b.Error(err)
							return
						}
						for {
							r, _, err := c.Next()
							if err != nil || r.Err != wire.OK {
								b.Errorf("%+v %v", r, err)
								return
							}
							if got++; got == mine || !c.More() {
								break
							}
						}
					}
				})
			}
			all.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
			b.ReportMetric(float64(b.N)/(cpuTime(b)-before).Seconds(), "creates/cpu-s")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
