package role

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/services"
)

// pulses is a replica-registry of which a test says whether it answers.
type pulses struct {
	mu    sync.Mutex
	away  error
	beats []*replica.Heartbeat
}

func (p *pulses) hear(_ context.Context, payload []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != nil {
		return nil, p.away
	}
	var h replica.Heartbeat
	if err := protojson.Unmarshal(payload, &h); err != nil {
		return nil, err
	}
	p.beats = append(p.beats, &h)
	return []byte(`{}`), nil
}

func (p *pulses) heard() []*replica.Heartbeat {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.beats)
}

func (p *pulses) leave(away error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

const beatEvery = 500 * time.Millisecond

// beating is a container whose heartbeats a test watches.
type beating struct {
	t                    *testing.T
	registry             pulses
	log                  strings.Builder
	well                 *health.State
	current              atomic.Pointer[replica.Heartbeat]
	beats                *Heartbeats
	answered, unanswered atomic.Int32
}

func newBeating(t *testing.T, b bus.Bus) *beating {
	x := &beating{t: t, well: health.New()}
	x.well.Fail("learning", errors.New("no data"))
	x.beats = NewHeartbeats(services.Env{BZID: "b", Bus: b, Log: slog.New(slog.NewTextHandler(&x.log, nil)), Health: x.well}, beatEvery,
		func() *replica.Heartbeat {
			if h := x.current.Load(); h != nil {
				return proto.CloneOf(h)
			}
			return nil
		})
	x.beats.Answered = func(err error) {
		if err != nil {
			x.unanswered.Add(1)
		} else {
			x.answered.Add(1)
		}
	}
	return x
}

// next waits for an interval's heartbeat.
func (x *beating) next() { time.Sleep(beatEvery); synctest.Wait() }

func (x *beating) problems() (names []string) {
	for _, p := range x.well.Problems() {
		names = append(names, p.Name)
	}
	return names
}

// begins beats nothing before there is something to tell, then at once, then regularly.
func (x *beating) begins() {
	t := x.t
	x.next()
	if len(x.registry.heard()) != 0 {
		t.Errorf("%d heartbeats before there is anything to tell", len(x.registry.heard()))
	}
	x.current.Store(&replica.Heartbeat{Container: &container.Container{Id: "c"}})
	x.beats.Soon()
	x.beats.Soon()
	synctest.Wait()
	if len(x.registry.heard()) == 0 {
		t.Error("news wait for the next interval")
	}
	n := len(x.registry.heard())
	for range 4 {
		x.next()
	}
	if got := len(x.registry.heard()) - n; got != 4 {
		t.Errorf("%d heartbeats in four intervals", got)
	}
}

// outage is four heartbeats without an answer, and one with it.
func (x *beating) outage() {
	t := x.t
	x.registry.leave(errors.New("no leader"))
	for n := 1; n <= 4; n++ {
		x.next()
		if got := slices.Contains(x.problems(), "heartbeats"); got != (n >= 3) {
			t.Errorf("without an answer %d times the problems are %q", n, x.problems())
		}
	}
	x.registry.leave(nil)
	x.next()
	if got := x.problems(); !slices.Equal(got, []string{"learning"}) {
		t.Errorf("answered again, the problems are %q", got)
	}
}

// A registry that does not answer is a problem from the third heartbeat on, which no
// heartbeat tells, and in the log once; the last heartbeat says that the container leaves.
func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		x := newBeating(t, b)
		stopServing, err := b.Commands().Serve(t.Context(), bus.Service{BZID: "b", Name: "pulse.registry", Version: "1.0.0", Description: "scripted",
			Endpoints: map[string]bus.Handler{"heartbeat": x.registry.hear}})
		if err != nil {
			t.Fatal(err)
		}
		defer stopServing()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { x.beats.Run(ctx); close(ended) }()
		x.begins()
		for range 2 {
			x.outage()
		}
		if got := strings.Count(x.log.String(), "does not answer heartbeats"); got != 2 {
			t.Errorf("%d warnings of two outages:\n%s", got, x.log.String())
		}
		if got := strings.Count(x.log.String(), "answers heartbeats again"); got != 2 {
			t.Errorf("the ends of two outages are told %d times:\n%s", got, x.log.String())
		}
		x.registry.leave(errors.New("no leader"))
		for range 3 {
			x.next()
		}
		stop()
		<-ended
		if got := x.problems(); !slices.Equal(got, []string{"learning"}) {
			t.Errorf("at the end the problems are %q", got)
		}
		x.registry.leave(nil)
		x.beats.Leave(ctx)
		heard := x.registry.heard()
		for i, h := range heard {
			if h.GetLeaving() != (i == len(heard)-1) || h.GetContainer().GetProblem() != "learning: no data" || h.GetNumber() <= 0 || i > 0 && h.GetNumber() <= heard[i-1].GetNumber() {
				t.Errorf("heartbeat %d of %d: %v", i, len(heard), h)
			}
		}
		if int(x.answered.Load()) != len(heard) || x.unanswered.Load() != 11 {
			t.Errorf("%d answered and %d unanswered heartbeats were told of, the registry answered %d", x.answered.Load(), x.unanswered.Load(), len(heard))
		}
	})
}
