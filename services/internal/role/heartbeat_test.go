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
	"github.com/monolith-go/monolith/internal/health"
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

// A registry that does not answer is a problem from the third heartbeat on, which no
// heartbeat tells, and in the log once; the last heartbeat says that the container leaves.
func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 500 * time.Millisecond
		b, log := mem.New(), &strings.Builder{}
		var registry pulses
		stopServing, err := b.Commands().Serve(t.Context(), bus.Service{BZID: "b", Name: "pulse.registry", Version: "1.0.0", Description: "scripted",
			Endpoints: map[string]bus.Handler{"heartbeat": registry.hear}})
		if err != nil {
			t.Fatal(err)
		}
		defer stopServing()
		well := health.New()
		well.Fail("learning", errors.New("no data"))
		var current atomic.Pointer[replica.Heartbeat]
		beats := NewHeartbeats(services.Env{BZID: "b", Bus: b, Log: slog.New(slog.NewTextHandler(log, nil)), Health: well}, every,
			func() *replica.Heartbeat {
				if h := current.Load(); h != nil {
					return proto.CloneOf(h)
				}
				return nil
			})
		var answered, unanswered atomic.Int32
		beats.Answered = func(err error) {
			if err != nil {
				unanswered.Add(1)
			} else {
				answered.Add(1)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { beats.Run(ctx); close(ended) }()
		next := func() { time.Sleep(every); synctest.Wait() }
		problems := func() (names []string) {
			for _, p := range well.Problems() {
				names = append(names, p.Name)
			}
			return names
		}
		next()
		if len(registry.heard()) != 0 {
			t.Errorf("%d heartbeats before there is anything to tell", len(registry.heard()))
		}
		current.Store(&replica.Heartbeat{Container: &container.Container{Id: "c"}})
		beats.Soon()
		beats.Soon()
		synctest.Wait()
		if len(registry.heard()) == 0 {
			t.Error("news wait for the next interval")
		}
		n := len(registry.heard())
		for range 4 {
			next()
		}
		if got := len(registry.heard()) - n; got != 4 {
			t.Errorf("%d heartbeats in four intervals", got)
		}
		for range 2 {
			registry.leave(errors.New("no leader"))
			for n := 1; n <= 4; n++ {
				next()
				if got := slices.Contains(problems(), "heartbeats"); got != (n >= 3) {
					t.Errorf("without an answer %d times the problems are %q", n, problems())
				}
			}
			registry.leave(nil)
			next()
			if got := problems(); !slices.Equal(got, []string{"learning"}) {
				t.Errorf("answered again, the problems are %q", got)
			}
		}
		if got := strings.Count(log.String(), "does not answer heartbeats"); got != 2 {
			t.Errorf("%d warnings of two outages:\n%s", got, log)
		}
		if got := strings.Count(log.String(), "answers heartbeats again"); got != 2 {
			t.Errorf("the ends of two outages are told %d times:\n%s", got, log)
		}
		registry.leave(errors.New("no leader"))
		for range 3 {
			next()
		}
		stop()
		<-ended
		if got := problems(); !slices.Equal(got, []string{"learning"}) {
			t.Errorf("at the end the problems are %q", got)
		}
		registry.leave(nil)
		beats.Leave(ctx)
		for i, h := range registry.heard() {
			if h.GetLeaving() != (i == len(registry.heard())-1) || h.GetContainer().GetProblem() != "learning: no data" || h.GetNumber() <= 0 || i > 0 && h.GetNumber() <= registry.heard()[i-1].GetNumber() {
				t.Errorf("heartbeat %d of %d: %v", i, len(registry.heard()), h)
			}
		}
		if int(answered.Load()) != len(registry.heard()) || unanswered.Load() != 11 {
			t.Errorf("%d answered and %d unanswered heartbeats were told of, the registry answered %d", answered.Load(), unanswered.Load(), len(registry.heard()))
		}
	})
}
