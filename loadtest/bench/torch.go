package bench

import (
	"context"
	"errors"

	"github.com/monolith-go/monolith/loadtest/peers"
)

// Torch returns torch's fastest way, as it is or compiled, to do what ("train" or "score") with DeepFM in one of the
// two precisions, and what it is called; nil where torch is not installed. Who gets it closes it.
func (r *Runner) Torch(ctx context.Context, what string, batch int, bf16 bool) (fastest *peers.Peer, name string, err error) {
	kind, half := "torch float32", 0
	if bf16 {
		kind, half = "torch bfloat16", 1
	}
	if r.OursOnly {
		return nil, kind, nil
	}
	var most float64
	for compiled, name := range []string{kind, kind + ", compiled"} {
		p, err := peers.Torch(ctx, "deepfm", batch, half, compiled)
		if err := r.Missing(err); err != nil {
			return nil, "", errors.Join(err, closed(fastest))
		}
		if p == nil {
			break
		}
		rate, err := PeerRate(p, what, 4*batch)(ctx)
		if err := r.Missing(err); err != nil {
			return nil, "", errors.Join(err, closed(p), closed(fastest))
		}
		r.Say("  %s: %s %.0f samples/s", name, what, rate)
		slower := p
		if rate > most {
			fastest, slower, most, kind = p, fastest, rate, name
		}
		if err := closed(slower); err != nil {
			return nil, "", errors.Join(err, closed(fastest))
		}
	}
	return fastest, kind, nil
}

// closed ends a peer, if there is one.
func closed(p *peers.Peer) error {
	if p == nil {
		return nil
	}
	return p.Close()
}
