package product

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/monolith-go/monolith/loadtest/bench"
)

// RippleCase is one user and so many candidates, asked at a fixed rate while so many rows a second are
// published to the replicas of all shards.
type RippleCase struct {
	Candidates int
	Rate       float64       // calls a second
	Rows       int           // of the movie table, from which candidates and deltas are drawn
	PerSecond  int           // rows of deltas
	Lag        time.Duration // by then, after a pass, every replica has applied what was due in it
	Each       time.Duration
	Rounds     int
	P99, P999  float64 // targets
}

// RippleCases are those of a full run.
var RippleCases = []RippleCase{
	{Candidates: 100, Rate: 500, Rows: 1_000_000, PerSecond: 100_000, Lag: time.Second, Each: 4 * time.Second, Rounds: 10, P99: 1.05, P999: 1.2},
}

// Ripple measures Predict calls through entry and shards while deltas come to every replica, against the
// same at rest, and before that rest against rest, which shows the noise.
func Ripple(start Start, cases []RippleCase) func(context.Context, *bench.Runner) error {
	return eachLearnt(start, cases, rippleCase)
}

func rippleCase(ctx context.Context, r *bench.Runner, c Cluster, rc RippleCase) error {
	requests, err := candidateRequests(c.Model(), rc.Candidates, rc.Rows)
	if err != nil {
		return err
	}
	rewriter := newRewriter(c, rc)
	if err := rewriter.all(ctx); err != nil {
		return err
	}
	return besideEntry(ctx, c, requests[0], func(entry *bytesClient, answer []byte) error {
		if err := checkAnswer(answer, rc.Candidates); err != nil {
			return err
		}
		rest := func(ctx context.Context) ([]float64, error) {
			return openQuantiles(ctx, OpenCase{Rate: rc.Rate, Each: rc.Each}, entry, requests, len(answer), 0.5, 0.99, 0.999)
		}
		compare := func(perSecond int, p99, p999 float64, pass bench.Pass) error {
			return r.Compare(ctx, bench.Comparison{
				Name: fmt.Sprintf("update-ripple/stack,candidates=%d,calls=%.0f/s,rows=%d,deltas=%d/s", rc.Candidates, rc.Rate, rc.Rows, perSecond), Baseline: "at rest",
				Figures: []bench.Figure{{Name: "p50", Unit: "ms", Better: bench.Lower}, {Name: "p99", Unit: "ms", Better: bench.Lower, Target: p99},
					{Name: "p99.9", Unit: "ms", Better: bench.Lower, Target: p999}},
				Rounds: rc.Rounds, Warm: rc.Rounds > 1, Ours: pass, Peer: rest,
			})
		}
		if err := compare(0, 0, 0, rest); err != nil {
			return err
		}
		return compare(rc.PerSecond, rc.P99, rc.P999, rewriter.beside(rest))
	})
}

// rewriter walks through all rows of a case in an order of chance, again and again.
type rewriter struct {
	RippleCase
	c     Cluster
	order []int64
	next  int
}

func newRewriter(c Cluster, rc RippleCase) *rewriter {
	w := &rewriter{RippleCase: rc, c: c, order: make([]int64, rc.Rows)}
	for i, m := range rand.New(rand.NewPCG(5, 6)).Perm(rc.Rows) {
		w.order[i] = 1 + int64(m)
	}
	return w
}

// some rewrites the next n rows.
func (w *rewriter) some(ctx context.Context, n int) error {
	const atOnce = 20_000
	for n > 0 {
		k := min(n, atOnce, len(w.order)-w.next)
		if err := w.c.Rewrite(ctx, w.order[w.next:w.next+k]); err != nil {
			return err
		}
		n -= k
		w.next = (w.next + k) % len(w.order)
	}
	return nil
}

// all has every replica hold all rows.
func (w *rewriter) all(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := w.some(ctx, len(w.order)); err != nil {
		return err
	}
	return w.c.Rewritten(ctx)
}

// beside runs a pass while rows are rewritten as often as the training shards flush.
func (w *rewriter) beside(pass bench.Pass) bench.Pass {
	return func(ctx context.Context) ([]float64, error) {
		within, stop := context.WithCancel(ctx)
		defer stop()
		wrote := make(chan error, 1)
		go func() { wrote <- w.rewrite(context.WithoutCancel(ctx), within.Done()) }() // ends with the pass, which waits for it
		got, err := pass(ctx)
		stop()
		if err := errors.Join(err, <-wrote); err != nil {
			return nil, err
		}
		late, cancel := context.WithTimeout(ctx, w.Lag)
		defer cancel()
		if err := w.c.Rewritten(late); err != nil {
			return nil, fmt.Errorf("the replicas do not keep up with %d rows a second: %w", w.PerSecond, err)
		}
		return got, nil
	}
}

// rewrite publishes rows as they fall due, until done, and what was due until then.
func (w *rewriter) rewrite(ctx context.Context, done <-chan struct{}) error {
	tick := time.NewTicker(clusterSync)
	defer tick.Stop()
	began, wrote := time.Now(), 0
	for last := false; !last; {
		select {
		case <-tick.C:
		case <-done:
			last = true
		}
		due := int(time.Since(began).Seconds() * float64(w.PerSecond))
		if err := w.some(ctx, due-wrote); err != nil {
			return err
		}
		wrote = due
	}
	return nil
}
