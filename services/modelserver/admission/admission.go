// Package admission refuses calls whose deadline cannot be met, before any work is done for them.
//
// What a call will take follows from Little's law: the calls of its model that are being answered, times the
// time from one answer to the next, measured while there are enough of them to keep the server busy. A call
// that would be answered too late costs as much as one in time, so a server that takes both ends up with
// answers for nobody; one that refuses what is too much goes on answering at its capacity.
package admission

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// margin is how many times the average time must fit before the deadline: it is an average, and the answer
	// has to travel.
	margin = 2
	// memory is what the measured time keeps at each answer: it is that of some 64 answers.
	memory = 1 - 1.0/64
)

// Gate lets calls in.
type Gate struct {
	slots   int
	refused prometheus.Counter

	mu     sync.Mutex
	models map[string]*line
}

// line is the calls of one model.
type line struct {
	inside int       // let in, and not answered
	since  time.Time // while all slots are taken: when that began, or the last answer
	// Sums over the last answers while all slots were taken: the seconds that passed, and the answers in time.
	seconds, answers float64
}

// New returns a gate of models that compute as many calls at once as there are slots: up to these, calls wait
// for nobody and are let in whatever was measured.
func New(slots int, refused prometheus.Counter) *Gate {
	return &Gate{slots: max(slots, 1), refused: refused, models: map[string]*line{}}
}

// Admit lets a call for a model in, until leave is called with whether it was served. Its error is a status: that of ctx if the caller has
// left, or RESOURCE_EXHAUSTED, with a [errdetails.RetryInfo], if the deadline of ctx cannot be met. A call
// without a deadline is let in. A model is remembered for ever: its name must not be made up by callers.
func (g *Gate) Admit(ctx context.Context, model string) (leave func(served bool), err error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.models[model]
	if l == nil {
		l = &line{}
		g.models[model] = l
	}
	now := time.Now()
	deadline, ok := ctx.Deadline()
	if takes := l.takes(); ok && l.inside >= g.slots && deadline.Sub(now) < margin*takes {
		g.refused.Inc()
		return nil, refusal(model, l.inside, takes, deadline.Sub(now))
	}
	if l.inside++; l.inside == g.slots {
		l.since = now
	}
	return func(served bool) { g.leave(l, served && ctx.Err() == nil) }, nil
}

// takes is how long one more call takes until it is answered, 0 while nothing is known. The caller holds mu.
func (l *line) takes() time.Duration {
	return time.Duration(float64(l.inside+1) * l.seconds / max(l.answers, 1) * float64(time.Second))
}

// leave ends a call. One that failed, or whose deadline has passed, is no answer: to count it would make a server
// that serves nobody, or that is sent what it cannot read, look quick.
func (g *Gate) leave(l *line, answered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l.inside >= g.slots {
		now := time.Now()
		l.seconds = l.seconds*memory + now.Sub(l.since).Seconds()
		l.answers *= memory
		if answered {
			l.answers++
		}
		l.since = now
	}
	l.inside--
}

func refusal(model string, inside int, takes, left time.Duration) error {
	again := (margin*takes - left).Round(time.Millisecond) + time.Millisecond
	st := status.Newf(codes.ResourceExhausted,
		"model %s is overloaded: %d calls are before this one, an answer takes %v or more, and the deadline is in %v; try again in %v, or ask another replica",
		model, inside, takes.Round(time.Microsecond), left.Round(time.Microsecond), again)
	if with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(again)}); err == nil {
		st = with
	}
	return st.Err()
}

// RetryIn is when a refused caller is to try again; ok is false for every other error.
func RetryIn(err error) (in time.Duration, ok bool) {
	for _, d := range status.Convert(err).Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			return retry.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}
