package replica

import (
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/events/container"
)

// Pulse tells the heartbeats of one life of a container apart from those of another life,
// and of one another. The zero value is ready; the life begins with its first heartbeat.
type Pulse struct {
	began atomic.Int64
	calls atomic.Uint64
}

// Stamp completes h as the next heartbeat, and returns it.
func (p *Pulse) Stamp(h *Heartbeat) *Heartbeat {
	p.began.CompareAndSwap(0, time.Now().UnixMicro())
	if h.Container == nil {
		h.Container = &container.Container{}
	}
	h.Container.StartedUs, h.Number = p.began.Load(), p.calls.Add(1)
	return h
}
