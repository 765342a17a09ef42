package jobs

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
)

// course is what has become of a job since this start of it.
type course struct {
	Seq     uint64
	Began   time.Time // when the first partition was taken
	Stopped time.Time
	Reason  string // of the stop
	Failed  string // why nothing useful is learnt
	// Trainers are what each has reported, by name; those that took no partition are missing.
	Trainers map[string]figures
}

// figures are a trainer's last ones.
type figures struct {
	Seq     uint64 // of the last report
	At      time.Time
	Samples uint64
	Steps   uint64
	Values  map[string]float64
	After   bool // it reported after the stop
}

// courseOf is the view of the job's facts behind begin.
func courseOf(bzid, job string, begin uint64) follow.View[course] {
	return follow.View[course]{
		Name: "course", Version: 1,
		New: func() course { return course{Trainers: map[string]figures{}} },
		Fold: func(s course, r events.Recorded) course {
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

func (s course) fold(e *training.Event, trainer string, r events.Recorded) course {
	switch b := e.GetBody().(type) {
	case *training.Event_PartitionTaken:
		if s.Began.IsZero() {
			s.Began = r.Time
		}
		if _, ok := s.Trainers[trainer]; !ok {
			s.Trainers = maps.Clone(s.Trainers)
			s.Trainers[trainer] = figures{}
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

// finalFigures says whether every trainer has told its figures after the job's end.
func (s course) finalFigures() bool {
	for _, f := range s.Trainers {
		if !f.After {
			return false
		}
	}
	return true
}

// mean is a figure of all trainers, by their samples; ok is false where none has told it.
func (s course) mean(name string) (v float64, ok bool) {
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
