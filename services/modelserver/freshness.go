package modelserver

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

// freshness remembers which deltas became visible when, and signals it: at most once,
// since whoever measures wants recent figures, not all of them.
type freshness struct {
	subject   string
	container string
	bus       bus.Signals
	metrics   *metrics
	log       *slog.Logger

	mu      sync.Mutex
	pending map[subModel][]*transfer.Applied
}

type subModel struct{ model, sub string }

// add notes that the flush ending at seq, published then, is served from now on.
func (f *freshness) add(s subModel, seq uint64, published time.Time) {
	now := time.Now()
	f.metrics.updated(published, now)
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.pending[s]
	if len(list) >= maxPending {
		list = append(list[:0], list[1:]...)
		f.metrics.signals.WithLabelValues("dropped").Inc()
	}
	f.pending[s] = append(list, &transfer.Applied{SyncSeq: seq, UnixUs: now.UnixMicro()})
}

// run signals every interval until ctx ends, and once more on its way out.
func (f *freshness) run(ctx context.Context, interval time.Duration) {
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

func (f *freshness) flush(ctx context.Context) {
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
