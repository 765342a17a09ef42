package trainer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// labels are a batch of one task.
type labels []float32

func (l labels) Len() int              { return len(l) }
func (l labels) Labels(int) []float32  { return l }
func (l labels) Weights(int) []float32 { return nil }

// Figures are facts while something is learnt: the rate is that since the last look, and what
// is not known yet is left out.
func TestFiguresAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		s := w.view(w.alone())
		log := &trainertest.Lines{}
		s.log = log.Logger()
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
			scores, truth := make([]float32, n), make([]float32, n)
			for i := range n {
				scores[i], truth[i] = float32(i%2), float32(i%2)
			}
			task := []modelspec.Task{{Name: "score", Label: &model.Label{Field: "rating", Threshold: 1}}}
			s.m.meter.Learnt(task, labels(truth), runtime.Result{Loss: float64(n) / 2, Losses: []float64{float64(n) / 2}, Scores: [][]float32{scores}})
		}
		time.Sleep(time.Millisecond) // off the tick
		check("nothing was learnt")
		learn(50)
		check("too few for a curve", "samples_per_second 5 of 50", "loss 0.5 of 50")
		learn(100)
		check("more", "samples_per_second 10 of 150", "loss 0.5 of 150", "auc 1 of 150")
		for name, want := range map[string]float64{"samples_per_second": 10, "loss": 0.5, "auc": 1} {
			if got := testutil.ToFloat64(s.m.figures.WithLabelValues(name)); got != want {
				t.Errorf("monolith_trainer_figure{name=%q} is %v, want %v", name, got, want)
			}
		}
		check("nothing")
		check("nothing again")
		learn(20)
		check("after a pause", "samples_per_second 2 of 170", "loss 0.5 of 170", "auc 1 of 170")
		if got := log.All(); len(got) != 0 {
			t.Errorf("log %q", got)
		}
		s.last = 1 << 40 // as of a subject that somebody else writes to
		learn(20)
		check("what cannot be said")
		time.Sleep(time.Minute) // attempts at it
		if got := log.All(); len(got) != 1 || !strings.Contains(got[0], "metrics were not reported") {
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
