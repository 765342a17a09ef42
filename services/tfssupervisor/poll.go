package tfssupervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

const (
	statusTimeout = time.Second
	// pollers is how many sub-models are asked about at a time.
	pollers = 16
	// missedPolls is how many polls in a row, over missedFor at least, go unanswered until a
	// sub-model's state is UNKNOWN: nobody should be sent to it any more.
	missedPolls = 3
	missedFor   = 500 * time.Millisecond
	// serverProblem names what keeps the model server from its work.
	serverProblem = "model server"
	// loadingProblem is of what the server could not load of its configuration.
	loadingProblem = "loading"
)

// errHung ends the management of a server that answers nothing any more.
var errHung = errors.New("it has answered nothing")

// polled is one answer to one question.
type polled struct {
	versions []*apis.ModelVersionStatus
	code     codes.Code
}

// poll asks for the state of every sub-model that the server should have, or may have
// still, and tells what has changed. It returns errHung once nothing has been answered
// for Config.HangTimeout.
func (in *instance) poll(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(in.tracks))
	answers := make([]polled, len(names))
	var all errgroup.Group
	all.SetLimit(pollers)
	for i, name := range names {
		served := in.tracks[name].served()
		all.Go(func() error {
			ask, cancel := context.WithTimeout(ctx, statusTimeout)
			defer cancel()
			res, err := in.client.GetModelStatus(ask, &apis.GetModelStatusRequest{ModelSpec: tfserving.Spec(served, 0)})
			answers[i] = polled{res.GetModelVersionStatus(), status.Code(err)}
			return nil
		})
	}
	_ = all.Wait() // each answer says for itself what went wrong
	if ctx.Err() != nil {
		return nil
	}
	heard := len(names) == 0
	for i, name := range names {
		t := in.tracks[name]
		switch answers[i].code {
		case codes.OK, codes.NotFound: // it has no version then
			t.heard()
			in.seen(ctx, t, answers[i].versions)
		default:
			in.missed(ctx, t, answers[i].code)
			continue
		}
		heard = true
		if !t.wanted && (t.stat == replica.State_UNKNOWN || t.stat == replica.State_END) {
			delete(in.tracks, name)
		}
	}
	in.tellSilence()
	if heard {
		in.heard = time.Now()
		in.missedRounds = 0
		return nil
	}
	if in.missedRounds++; in.missedRounds >= missedPolls && time.Since(in.heard) >= in.s.cfg.HangTimeout {
		return fmt.Errorf("%w for %v", errHung, time.Since(in.heard).Round(time.Millisecond))
	}
	return nil
}

// missed notes a poll without an answer. What was seen last stands for a few of them.
func (in *instance) missed(ctx context.Context, t *track, code codes.Code) {
	if t.misses++; t.misses == 1 {
		t.since = time.Now()
	}
	if t.misses < missedPolls || time.Since(t.since) < missedFor {
		return
	}
	t.silent = true
	t.stat, t.at, t.code = replica.State_UNKNOWN, t.version, code
	if t.wanted {
		in.say(ctx, t, t.version, fact{"failed", fmt.Sprintf("%s: the model server does not answer about it", code)})
	}
}

// heard ends the silence about t.
func (t *track) heard() { t.misses, t.silent = 0, false }

// tellSilence reports sub-models about which the server does not answer, by name and
// code, until it does.
func (in *instance) tellSilence() {
	var first *track
	n := 0
	for _, name := range slices.Sorted(maps.Keys(in.tracks)) {
		if t := in.tracks[name]; t.silent {
			if n++; first == nil {
				first = t
			}
		}
	}
	switch {
	case n > 1:
		in.s.env.Health.Fail(serverProblem, fmt.Errorf("it does not answer about %s (%s) and %d more", first.name(), first.code, n-1))
	case n == 1:
		in.s.env.Health.Fail(serverProblem, fmt.Errorf("it does not answer about %s (%s)", first.name(), first.code))
	default:
		in.s.env.Health.OK(serverProblem)
	}
}
