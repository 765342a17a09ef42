package bench

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/monolith-go/monolith/loadtest/peers"
)

// PassTime is about how long one pass of a kernel takes.
const PassTime = time.Second

// Rate measures how much of something there is in a second.
type Rate func(ctx context.Context) (perSecond float64, err error)

// Threads are those that kernels and their peers may use.
func Threads() int { return runtime.GOMAXPROCS(0) }

// PeerRate measures a peer's work: n things of a size that takes about PassTime.
func PeerRate(p *peers.Peer, what string, n int) Rate {
	return func(context.Context) (float64, error) {
		for {
			s, err := p.Seconds(what, n)
			if err != nil {
				return 0, err
			}
			if s > PassTime.Seconds()/4 {
				return float64(n) / s, nil
			}
			n *= 4
		}
	}
}

// Missing turns a peer that is not installed, or too slow, into none, and says so.
func (r *Runner) Missing(err error) error {
	if errors.Is(err, peers.ErrMissing) || errors.Is(err, peers.ErrSlow) {
		r.Say("  %v", err)
		return nil
	}
	return err
}

// ShareOf is a pass of two figures: a rate, and its part of a ceiling that is measured right before.
func ShareOf(ceiling, rate Rate) Pass {
	return func(ctx context.Context) ([]float64, error) {
		most, err := ceiling(ctx)
		if err != nil {
			return nil, err
		}
		got, err := rate(ctx)
		if err != nil {
			return nil, err
		}
		return []float64{got, got / most}, nil
	}
}

// Times is a rate counted in other units, of which one of the rate's is that many.
func (r Rate) Times(many float64) Rate {
	return func(ctx context.Context) (float64, error) {
		v, err := r(ctx)
		return v * many, err
	}
}
