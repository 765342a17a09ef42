package rows

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/transfer"
)

const (
	maxPending = 8192 // applied deltas kept per sub-model between two signals
	maxSignal  = 2048 // of them in one signal, well below the payload limit
)

// Freshness remembers which deltas became visible when, and signals it: at most once,
// since whoever measures wants recent figures, not all of them.
type Freshness struct {
	subject   string
	container string
	bus       bus.Signals
	metrics   *Metrics
	log       *slog.Logger

	mu      sync.Mutex
	pending map[subModel][]*transfer.Applied
}

type subModel struct{ model, sub string }

// NewFreshness signals under the container's name.
func NewFreshness(bzid, container string, signals bus.Signals, m *Metrics, log *slog.Logger) *Freshness {
	return &Freshness{
		subject: signalSubject(bzid, container), container: container,
		bus: signals, metrics: m, log: log, pending: map[subModel][]*transfer.Applied{},
	}
}

// signalSubject is where a container says which deltas it serves.
func signalSubject(bzid, container string) string {
	return bus.PulseSubject(bzid, "applied", container)
}

// Add notes that a sub-model of model serves x from now on.
func (f *Freshness) Add(model, sub string, x Flush) {
	now := time.Now()
	s := subModel{model, sub}
	f.metrics.updated(x.At, now)
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.pending[s]
	if len(list) >= maxPending {
		list = append(list[:0], list[1:]...)
		f.metrics.signals.WithLabelValues("dropped").Inc()
	}
	f.pending[s] = append(list, &transfer.Applied{SyncSeq: x.Seq, UnixUs: now.UnixMicro()})
}

// Run signals every interval until ctx ends, and once more on its way out.
func (f *Freshness) Run(ctx context.Context, interval time.Duration) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f.flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			f.flush(last)
			cancel()
			return
		}
	}
}

func (f *Freshness) flush(ctx context.Context) {
	f.mu.Lock()
	pending := f.pending
	f.pending = map[subModel][]*transfer.Applied{}
	f.mu.Unlock()
	for s, list := range pending {
		for len(list) > 0 {
			n := min(len(list), maxSignal)
			body, err := events.Marshal(&transfer.DeltasApplied{ModelName: s.model, SubModel: s.sub, Container: f.container, Applied: list[:n]})
			if err == nil {
				send, cancel := context.WithTimeout(ctx, 2*time.Second)
				err = f.bus.Signal(send, f.subject, body)
				cancel()
			}
			outcome := "sent"
			if err != nil {
				outcome = "failed"
				f.log.Debug("applied deltas not signalled", "err", err)
			}
			f.metrics.signals.WithLabelValues(outcome).Add(float64(n))
			list = list[n:]
		}
	}
}
