package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/training"
)

// A registry that does not answer is a problem from the third heartbeat on, and told in the
// log once; the last heartbeat says that the trainer leaves.
func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		s := w.view(w.alone())
		log := &lines{}
		s.log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		var away atomic.Pointer[error]
		gone := errors.New("no leader")
		var beats []*replica.Heartbeat
		stopServing, err := w.b.Commands().Serve(t.Context(), bus.Service{BZID: bzid, Name: "pulse.registry", Version: "1.0.0", Description: "scripted",
			Endpoints: map[string]bus.Handler{"heartbeat": func(_ context.Context, payload []byte) ([]byte, error) {
				if err := away.Load(); err != nil {
					return nil, *err
				}
				var h replica.Heartbeat
				if err := protojson.Unmarshal(payload, &h); err != nil {
					return nil, err
				}
				beats = append(beats, &h)
				return []byte(`{}`), nil
			}}})
		if err != nil {
			t.Fatal(err)
		}
		defer stopServing()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.heartbeat(ctx) }()
		next := func() { time.Sleep(heartbeatEvery); synctest.Wait() }
		synctest.Wait()
		for range 4 {
			next()
		}
		if len(beats) != 5 || len(log.all()) != 0 {
			t.Errorf("%d heartbeats, log %q", len(beats), log.all())
		}
		for round := range 2 {
			away.Store(&gone)
			for n := 1; n <= unwell+1; n++ {
				next()
				want := ""
				if n >= unwell {
					want = "no leader"
				}
				says(t, s, fmt.Sprintf("round %d, without an answer %d", round, n), healthHeartbeats, want)
			}
			away.Store(nil)
			next()
			says(t, s, "answered", healthHeartbeats, "")
			next()
		}
		if got := log.all(); len(got) != 4 || !strings.Contains(got[2], "does not answer") || !strings.Contains(got[3], "the registry answers") {
			t.Errorf("log %q", got)
		}
		for range unwell {
			away.Store(&gone)
			next()
		}
		away.Store(nil)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		says(t, s, "at the end", healthHeartbeats, "")
		if got := log.all(); strings.Contains(got[len(got)-1], "not told of the end") {
			t.Errorf("log %q", got)
		}
		for i, h := range beats {
			if h.GetLeaving() != (i == len(beats)-1) || h.GetContainer().GetId() != "b" || h.GetContainer().GetKind() != kind || h.GetContainer().GetShard() != -1 {
				t.Errorf("heartbeat %d of %d: %v", i, len(beats), h)
			}
		}
	})
}

// Figures are facts while something is learnt: the rate is that since the last look, and what
// is not known yet is left out.
func TestFiguresAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		s := w.view(w.alone())
		log := &lines{}
		s.log = log.logger()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.report(ctx) }()
		reported := 0
		check := func(what string, want ...string) {
			t.Helper()
			time.Sleep(reportEvery)
			synctest.Wait()
			facts, _ := w.facts(events.Join(bzid, "training", theJob+"/b"))
			var got []string
			for _, f := range facts[reported:] {
				m := f.GetMetricReported()
				got = append(got, fmt.Sprintf("%s %.3g of %d", m.GetName(), m.GetValue(), m.GetSamples()))
			}
			if reported = len(facts); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		learn := func(n int) {
			scores, labels := make([]float32, n), make([]float32, n)
			for i := range n {
				scores[i], labels[i] = float32(i%2), float32(i%2)
			}
			s.m.learnt(scores, labels, float64(n)/2, 0, 0)
		}
		time.Sleep(time.Millisecond) // off the tick
		check("nothing was learnt")
		learn(50)
		check("too few for a curve", "samples_per_second 5 of 50", "loss 0.5 of 50")
		learn(100)
		check("more", "samples_per_second 10 of 150", "loss 0.5 of 150", "auc 1 of 150")
		check("nothing")
		check("nothing again")
		learn(20)
		check("after a pause", "samples_per_second 2 of 170", "loss 0.5 of 170", "auc 1 of 170")
		if got := log.all(); len(got) != 0 {
			t.Errorf("log %q", got)
		}
		s.last = 1 << 40 // as of a subject that somebody else writes to
		learn(20)
		check("what cannot be said")
		time.Sleep(time.Minute) // attempts at it
		if got := log.all(); len(got) != 1 || !strings.Contains(got[0], "metrics were not reported") {
			t.Errorf("log %q", got)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A trainer's facts follow one another; telling nothing appends nothing.
func TestFactsOfATrainerFollowOneAnother(t *testing.T) {
	w := busOnly(t)
	s := w.view(w.alone())
	metric := func(name string) *training.Event {
		return &training.Event{Body: &training.Event_MetricReported{MetricReported: &training.MetricReported{Name: name}}}
	}
	for _, facts := range [][]*training.Event{{metric("a"), metric("b")}, nil, {metric("c")}} {
		if err := s.tell(t.Context(), facts...); err != nil {
			t.Fatal(err)
		}
	}
	facts, headers := w.facts(s.own())
	var got string
	for _, f := range facts {
		got += f.GetMetricReported().GetName()
	}
	if got != "abc" || headers[0].ID == headers[1].ID {
		t.Errorf("facts %q, %v", got, headers)
	}
	if last, err := w.b.Log().LastOf(t.Context(), s.own()); err != nil || s.last != last {
		t.Errorf("the last fact is %d, the log has %d, %v", s.last, last, err)
	}
}
