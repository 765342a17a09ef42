// Package requests is the view of what was asked of a training job and not answered yet.
package requests

import (
	"slices"
	"strings"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/training"
)

// State is a fold of what was asked of a job on training.<job>.request and not
// answered yet, so that a new chief answers what the last one left; and of what others
// put on the job's subjects.
type State struct {
	Seq uint64 `json:"seq"`
	// Open is what the chief owes: at most one checkpoint, which answers every request for
	// one up to it, then at most one stop.
	Open []Request `json:"open,omitempty"`
	// Hold is the newest request to pause or to resume that is not answered: it answers those before
	// it, too, and waits for no checkpoint.
	Hold *Request `json:"hold,omitempty"`
	// Paused is a job that takes no records for now.
	Paused bool `json:"paused,omitempty"`
	// Stopped is a job that goes on only once Start is there.
	Stopped bool     `json:"stopped,omitempty"`
	Start   *Request `json:"start,omitempty"`
	// Taken are the requests that were taken, answered or not, the newest last: one that comes
	// again has the answer of the first, and is not carried out twice.
	Taken []identity `json:"taken,omitempty"`
	// Refused are to be parked by the chief; parking twice stores once.
	Refused []bus.Parked `json:"refused,omitempty"`
}

// Request is one that was asked on training.<job>.request, or by the chief itself.
type Request struct {
	ID          string `json:"id"`
	Seq         uint64 `json:"seq"`
	Stop        bool   `json:"stop,omitempty"`
	Pause       bool   `json:"pause,omitempty"` // of a Hold: to pause, or else to resume
	Export      bool   `json:"export,omitempty"`
	Keep        bool   `json:"keep,omitempty"` // the checkpoint is to be exempt from those that are deleted
	Reason      string `json:"reason,omitempty"`
	Correlation string `json:"correlation,omitempty"`
	Traceparent string `json:"traceparent,omitempty"`
}

// identity is what makes two requests one: who sends something again repeats all of it.
type identity struct {
	Source string `json:"source,omitempty"`
	ID     string `json:"id"`
	Type   string `json:"type"`
}

// by is what letters say of who parked them.
const by = "trainer"

// maxRefused bounds what is kept for parking: the stream itself keeps the rest.
const maxRefused = 1000

// maxTaken bounds the requests that are known when they come again.
const maxTaken = 1024

// View follows what is asked of a job, by those whom asked knows. That is told by the event and by
// who may ask, so the same log folds to the same State.
func View(bzid, job string, asked func(events.Recorded) (events.Asked, error)) follow.View[State] {
	subject := training.Subject(bzid, job)
	return follow.View[State]{
		Name: "requests", Version: 6,
		New: func() State { return State{} },
		Fold: func(s State, r events.Recorded) State {
			if r.Seq <= s.Seq {
				return s
			}
			s.Seq = r.Seq
			switch {
			case r.Subject == subject.Request():
				if _, err := asked(r); err != nil && r.Err == nil {
					return s.refuse(r, err.Error())
				}
				return s.asked(r)
			case !ofJob(r.Subject, bzid, job):
			case r.Err != nil:
				return s.refuse(r, r.Err.Error())
			case strings.HasSuffix(string(r.Subject), ".request"):
				return s.refuse(r, "a trainer takes no requests: publish on training."+job+".request")
			case r.Subject == subject:
				return s.answered(r)
			}
			return s
		},
	}
}

// ofJob says whether a subject is the job's or one of its trainers'.
func ofJob(subject events.Subject, bzid, job string) bool {
	p, err := subject.Parse()
	return err == nil && p.BZID == bzid && p.Context == training.Context && (p.Aggregate == job || strings.HasPrefix(p.Aggregate, job+"/"))
}

func (s State) asked(r events.Recorded) State {
	if r.Err != nil {
		return s.refuse(r, r.Err.Error())
	}
	q := Request{ID: r.Header.ID, Seq: r.Seq, Correlation: r.Header.Correlation, Traceparent: r.Header.Traceparent}
	e, _ := r.Event.(*training.Event)
	who := identity{r.Header.Source, r.Header.ID, catalog.Type(r.Event)}
	if slices.Contains(s.Taken, who) {
		return s
	}
	switch b := e.GetBody().(type) {
	case *training.Event_CheckpointRequested:
		q.Export, q.Keep, q.Reason = b.CheckpointRequested.GetExport(), b.CheckpointRequested.GetKeep(), b.CheckpointRequested.GetReason()
	case *training.Event_StopRequested:
		q.Stop, q.Reason = true, b.StopRequested.GetReason()
	case *training.Event_StartRequested:
		if !s.Stopped {
			return s.refuse(r, "the job is not stopped: there is nothing to start")
		}
		q.Reason = b.StartRequested.GetReason()
		s.Start = &q
		return s.take(who)
	case *training.Event_PauseRequested:
		q.Pause, q.Reason = true, b.PauseRequested.GetReason()
		return s.holds(r, who, q)
	case *training.Event_ResumeRequested:
		q.Reason = b.ResumeRequested.GetReason()
		return s.holds(r, who, q)
	default:
		return s.refuse(r, "the job answers checkpointRequested, pauseRequested, resumeRequested, stopRequested and startRequested only")
	}
	if s.Stopped {
		return s.refuse(r, isStopped)
	}
	s = s.take(who)
	switch n := len(s.Open); {
	case n > 0 && s.Open[n-1].Stop:
		return s // answered by the stop, as is what is open besides
	case n > 0 && !q.Stop:
		q.Export, q.Keep = q.Export || s.Open[n-1].Export, q.Keep || s.Open[n-1].Keep
		s.Open = []Request{q} // one cut answers both
	default:
		s.Open = append(s.Open[:n:n], q)
	}
	return s
}

const isStopped = "the job is stopped: publish startRequested first"

// holds takes a request to pause or to resume, unless the job is so, or soon will be.
func (s State) holds(r events.Recorded, who identity, q Request) State {
	paused := s.Paused
	if s.Hold != nil {
		paused = s.Hold.Pause
	}
	switch {
	case s.Stopped:
		return s.refuse(r, isStopped)
	case paused && q.Pause:
		return s.refuse(r, "the job is paused already")
	case !paused && !q.Pause:
		return s.refuse(r, "the job is not paused: there is nothing to resume")
	}
	s.Hold = &q
	return s.take(who)
}

// take remembers a request that is not refused.
func (s State) take(who identity) State {
	s.Taken = append(s.Taken, who)
	if n := len(s.Taken); n > maxTaken {
		s.Taken = slices.Clone(s.Taken[n-maxTaken:])
	}
	return s
}

func (s State) refuse(r events.Recorded, reason string) State {
	s.Refused = append(s.Refused, bus.Parked{
		Reason: reason, By: by, Stream: "MONOLITH", StreamSeq: r.Seq, Subject: string(r.Subject), Data: r.Data,
	})
	if n := len(s.Refused); n > maxRefused {
		s.Refused = append([]bus.Parked(nil), s.Refused[n-maxRefused:]...)
	}
	return s
}

// answered closes what the fact answers. A checkpoint that a request caused answers that
// request and all before it; a request to stop is answered by jobStopped alone, which
// leaves nothing open.
func (s State) answered(r events.Recorded) State {
	e, _ := r.Event.(*training.Event)
	switch e.GetBody().(type) {
	case *training.Event_JobStarted:
		s.Stopped, s.Start = false, nil
	case *training.Event_JobStopped:
		s.Open, s.Stopped, s.Start = nil, true, nil
		s.Hold, s.Paused = nil, false
	case *training.Event_JobPaused, *training.Event_JobResumed:
		s.Paused = e.GetJobPaused() != nil
		if s.Hold != nil && s.Hold.ID == r.Header.Causation {
			s.Hold = nil
		}
	case *training.Event_CheckpointSaved, *training.Event_CheckpointFailed:
		var open []Request
		for _, q := range s.Open {
			if q.Stop || q.ID != r.Header.Causation {
				open = append(open, q)
			}
		}
		s.Open = open
	}
	return s
}
