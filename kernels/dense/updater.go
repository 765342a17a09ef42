package dense

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/par"
)

// piece is how many weights a thread updates at once. Every piece has slots of its own, so
// optimizers that keep more than a plane per weight work as well.
const piece = 1 << 14

// Updater applies an optimizer to a model's parameters. It keeps the slots. One call at a
// time.
type Updater struct {
	opt    optim.Optimizer
	sizes  []int
	pieces []weights

	params, grads [][]float32
	at            optim.Step
}

type weights struct {
	param, lo, hi int
	slots         []float32
}

// NewUpdater makes the slots for parameters of the given sizes. It refuses optimizers that
// do not take vectors of every length.
func NewUpdater(opt optim.Optimizer, sizes ...int) (*Updater, error) {
	u := &Updater{opt: opt, sizes: append([]int(nil), sizes...)}
	for i, n := range sizes {
		for lo := 0; lo < n; lo += piece {
			w := weights{param: i, lo: lo, hi: min(n, lo+piece)}
			if err := optim.CheckDim(opt, w.hi-w.lo); err != nil {
				return nil, fmt.Errorf("dense: parameter %d: %w", i, err)
			}
			w.slots = make([]float32, opt.SlotSize(w.hi-w.lo))
			opt.InitSlots(w.slots)
			u.pieces = append(u.pieces, w)
		}
	}
	// In the order of how far into their parameter they lie: so a pool gives the upper
	// rows of all gradients to the thread that has computed them.
	slices.SortStableFunc(u.pieces, func(a, b weights) int {
		return cmp.Compare(float64(a.lo)/float64(sizes[a.param]), float64(b.lo)/float64(sizes[b.param]))
	})
	return u, nil
}

// Apply updates params by grads, with pool's threads (nil: the calling goroutine). The
// result does not depend on them.
func (u *Updater) Apply(params, grads [][]float32, at optim.Step, pool *par.Pool) error {
	if len(params) != len(u.sizes) || len(grads) != len(u.sizes) {
		return fmt.Errorf("dense: %d parameters and %d gradients for an updater of %d: give equal numbers", len(params), len(grads), len(u.sizes))
	}
	for i, n := range u.sizes {
		if len(params[i]) != n || len(grads[i]) != n {
			return fmt.Errorf("dense: parameter %d has %d weights and %d gradients where the updater keeps slots for %d", i, len(params[i]), len(grads[i]), n)
		}
	}
	u.params, u.grads, u.at = params, grads, at
	pool.For(len(u.pieces), 1, u)
	u.params, u.grads = nil, nil
	return nil
}

// Do updates some pieces; Apply calls it.
func (u *Updater) Do(lo, hi int) {
	for _, w := range u.pieces[lo:hi] {
		u.opt.Update(u.params[w.param][w.lo:w.hi], w.slots, u.grads[w.param][w.lo:w.hi], u.at)
	}
}
