// Package course is what becomes of a job from one start of it on: the figures of its trainers, and how far it is.
package course

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
)

// State is what has become of a job since this start of it.
type State struct {
	Seq     uint64
	Began   time.Time // when the first partition was taken
	Stopped time.Time
	Reason  string // of the stop
	Failed  string // why nothing useful is learnt
	// Trainers are what each has reported, by name; those that took no partition are missing.
	Trainers map[string]Figures
}

// Figures are a trainer's last ones.
type Figures struct {
	Seq     uint64 // of the last report
	At      time.Time
	Samples uint64
	Steps   uint64
	Values  map[string]float64
	After   bool // it reported after the stop
}

// View is that of the job's facts behind begin.
func View(bzid, job string, begin uint64) follow.View[State] {
	return follow.View[State]{
		Name: "course", Version: 1,
		New: func() State { return State{Trainers: map[string]Figures{}} },
		Fold: func(s State, r events.Recorded) State {
			p, err := r.Subject.Parse()
			if r.Seq <= max(s.Seq, begin) || err != nil || p.BZID != bzid || p.Context != training.Context {
				return s
			}
			s.Seq = r.Seq
			name, trainer, _ := strings.Cut(p.Aggregate, "/")
			if e, ok := r.Event.(*training.Event); ok && name == job {
				return s.fold(e, trainer, r)
			}
			return s
		},
	}
}

func (s State) fold(e *training.Event, trainer string, r events.Recorded) State {
	switch b := e.GetBody().(type) {
	case *training.Event_PartitionTaken:
		if s.Began.IsZero() {
			s.Began = r.Time
		}
		if _, ok := s.Trainers[trainer]; !ok {
			s.Trainers = maps.Clone(s.Trainers)
			s.Trainers[trainer] = Figures{}
		}
	case *training.Event_MetricReported:
		s.Trainers = maps.Clone(s.Trainers)
		f := s.Trainers[trainer]
		f.Values = maps.Clone(f.Values)
		if f.Values == nil {
			f.Values = map[string]float64{}
		}
		m := b.MetricReported
		f.Seq, f.At, f.Samples, f.Steps, f.After = r.Seq, r.Time, m.GetSamples(), m.GetStep(), !s.Stopped.IsZero()
		f.Values[m.GetName()] = m.GetValue()
		s.Trainers[trainer] = f
	case *training.Event_JobStarted:
		s.Stopped, s.Reason = time.Time{}, ""
	case *training.Event_JobStopped:
		s.Stopped, s.Reason = r.Time, b.JobStopped.GetReason()
	case *training.Event_HealthFailed:
		s.Failed = b.HealthFailed.GetReason()
	}
	return s
}

// Final says whether every trainer has told its figures after the job's end.
func (s State) Final() bool {
	for _, f := range s.Trainers {
		if !f.After {
			return false
		}
	}
	return true
}

// Mean is a figure of all trainers, by their samples; ok is false where none has told it.
func (s State) Mean(name string) (v float64, ok bool) {
	var n float64
	for _, t := range slices.Sorted(maps.Keys(s.Trainers)) {
		f := s.Trainers[t]
		if x, has := f.Values[name]; has {
			v += x * float64(f.Samples)
			n += float64(f.Samples)
		}
	}
	return v / n, n > 0
}

// Known is Mean, nil where no trainer has told a finite one.
func (s State) Known(name string) *float64 {
	v, ok := s.Mean(name)
	if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
