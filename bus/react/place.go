package react

import (
	"context"
	"sync/atomic"
	"time"
)

// rememberEvery is how often the places of reactions that moved are stored: what a crash
// forgets is looked through again.
const rememberEvery = 30 * time.Second

// place is how far in the log a reaction has settled everything.
type place struct {
	at    atomic.Uint64
	saved uint64 // remember's own
}

// remember stores the reactions' places now and then, and once more at the end.
func (r *Reactor) remember(reactions []*reaction, stop <-chan struct{}) {
	t := time.NewTicker(rememberEvery)
	defer t.Stop()
	for ended := false; !ended; {
		select {
		case <-t.C:
		case <-stop:
			ended = true
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		for _, x := range reactions {
			x.save(ctx)
		}
		cancel()
	}
}

// save stores the place if it has moved. One that cannot be stored now is later, or
// costs a longer look through the log at the next start.
func (x *reaction) save(ctx context.Context) {
	at := x.place.at.Load()
	if at <= x.place.saved {
		return
	}
	if err := x.r.cfg.Letters.Settle(ctx, x.r.cfg.BZID, x.name, at); err != nil {
		x.r.cfg.Logger.Debug("place of the reaction is not stored", "reaction", x.name, "seq", at, "err", err)
		return
	}
	x.place.saved = at
}
