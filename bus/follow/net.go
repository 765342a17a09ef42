package follow

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/monolith-go/monolith/internal/process/prom"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/events"
)

// fold is the state after r, folded part by part where the view has parts. after is
// called behind each part; nil: by nobody. failed is told of a part whose fold panicked.
func (v View[S]) fold(s S, r events.Recorded, after func(S, events.Recorded), failed func(events.Recorded, error)) S {
	one := func(r events.Recorded) {
		var err error
		if s, err = v.try(s, r); err != nil && failed != nil {
			failed(r, err)
		}
		if after != nil {
			after(s, r)
		}
	}
	if v.Parts == nil {
		one(r)
		return s
	}
	for part := range v.Parts(r) {
		one(part)
	}
	return s
}

// try is Fold, and the last net under it: an accepted fact that no fold expected is
// skipped and counted, everywhere alike. It would end the process at every start
// otherwise, because the log never forgets it.
func (v View[S]) try(s S, r events.Recorded) (out S, err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if out, err = s, fmt.Errorf("panic: %v\n%s", p, debug.Stack()); v.Failed != nil {
			out = v.Failed(s, r)
		}
	}()
	return v.Fold(s, r), nil
}

// failed says that an event was skipped because its fold panicked.
func (f *Follower[S]) failed(r events.Recorded, err error) {
	f.failures.Inc()
	f.opt.Log.Error("an event could not be folded and was skipped: it is a defect of this view, please report it",
		"view", f.view.Name, "seq", r.Seq, "subject", r.Subject, "type", r.Header.Type, "err", err)
}

// failures is the view's counter of monolith_projection_failed_events_total.
func failures(reg prometheus.Registerer, view string, log *slog.Logger) prometheus.Counter {
	vec, err := prom.TryRegister(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "monolith_projection_failed_events_total",
		Help: "Events that were skipped because their fold panicked, each of which is a defect.",
	}, []string{"view"}))
	if err != nil {
		log.Warn("the counter of failed events is not exported", "err", err)
	}
	return vec.WithLabelValues(view)
}
