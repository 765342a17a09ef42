// Package openloop makes calls when they fall due by the clock, whether or not those before were
// answered, and counts latencies from the moment each was due: a server that stalls delays every
// call that falls due meanwhile, and the figures say so.
package openloop

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"time"

	"google.golang.org/grpc/status"
)

// Shed is the code of a call that was due while MaxInFlight were under way, and so was never made.
const Shed = "shed"

// Config says when calls fall due.
type Config struct {
	Rate    float64 // calls per second, on average
	Poisson bool    // intervals are drawn, as those of people who know nothing of each other; else they are equal
	Seed    uint64
	// MaxInFlight bounds the calls under way. Default 256.
	MaxInFlight int
	// Timeout of one call, from when it is made. Default 1 s.
	Timeout time.Duration
	// Precise spends a processor on the last millisecond before each call: what timers are late by
	// would count as the server's latency.
	Precise bool
}

// Validate says what cannot be run.
func (c *Config) Validate() error {
	if !(c.Rate > 0) || math.IsInf(c.Rate, 0) {
		return fmt.Errorf("load: %v calls per second: the rate must be positive", c.Rate)
	}
	if c.MaxInFlight <= 0 {
		c.MaxInFlight = 256
	}
	if c.Timeout <= 0 {
		c.Timeout = time.Second
	}
	return nil
}

// Call is one call. Its error's gRPC code counts.
type Call func(context.Context) error

// Answer is one finished call.
type Answer struct {
	Due  time.Time
	Late time.Duration // from when it was due until it was made
	Took time.Duration // from when it was due until it was answered
	Code string        // "": answered
}

// Run makes calls until ctx ends, and waits for those under way. next prepares the n-th one, in
// this order and one at a time, before it falls due; observe gets every answer, one at a time.
func Run(ctx context.Context, cfg Config, next func(n int) Call, observe func(Answer)) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	answers := make(chan Answer, 1024)
	go func() { // ends when its last call has ended, which the loop below waits for
		defer close(answers)
		dispatch(ctx, cfg, next, answers)
	}()
	for a := range answers {
		observe(a)
	}
	return nil
}

// dispatch makes each call when it is due.
func dispatch(ctx context.Context, cfg Config, next func(n int) Call, answers chan<- Answer) {
	slots := make(chan struct{}, cfg.MaxInFlight)
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x617272697665))
	due := time.Now()
	start := due
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; ; n++ {
		call := next(n)
		if !await(ctx, timer, due, cfg.Precise) {
			break
		}
		at := due
		if cfg.Poisson {
			due = due.Add(time.Duration(rng.ExpFloat64() / cfg.Rate * float64(time.Second)))
		} else {
			due = start.Add(time.Duration(float64(n+1) / cfg.Rate * float64(time.Second)))
		}
		select {
		case slots <- struct{}{}:
		default:
			answers <- Answer{Due: at, Late: time.Since(at), Code: Shed}
			continue
		}
		go func() { // owned by dispatch: it takes every slot before it returns
			defer func() { <-slots }()
			made, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Timeout)
			defer cancel()
			a := Answer{Due: at, Late: max(time.Since(at), 0)}
			err := call(made)
			if a.Took = time.Since(at); err != nil {
				a.Code = status.Code(err).String()
			}
			answers <- a
		}()
	}
	for range cfg.MaxInFlight {
		slots <- struct{}{}
	}
}

// precision is how long before a call's moment timers are no longer trusted.
const precision = time.Millisecond

// await waits until due; false once ctx has ended, and for what is due at its deadline or later: on a
// busy machine ctx ends behind its deadline, and calls of that while would be more than the rate makes.
func await(ctx context.Context, timer *time.Timer, due time.Time, precise bool) bool {
	wait := time.Until(due)
	if precise {
		wait -= precision
	}
	if wait > 0 {
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
	for precise && time.Until(due) > 0 && ctx.Err() == nil {
		runtime.Gosched()
	}
	end, ends := ctx.Deadline()
	return ctx.Err() == nil && (!ends || due.Before(end))
}
