package trainer

import (
	"strings"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
)

// requests is a fold of what was asked of a job on training.<job>.request and not
// answered yet, so that a new chief answers what the last one left; and of what others
// put on the job's subjects.
type requests struct {
	Seq uint64 `json:"seq"`
	// Open is what the chief owes: at most one checkpoint, which answers every request for
	// one up to it, then at most one stop.
	Open []request `json:"open,omitempty"`
	// Stopped is a job that goes on only once Start is there.
	Stopped bool     `json:"stopped,omitempty"`
	Start   *request `json:"start,omitempty"`
	// Refused are to be parked by the chief; parking twice stores once.
	Refused []bus.Parked `json:"refused,omitempty"`
}

type request struct {
	ID          string `json:"id"`
	Seq         uint64 `json:"seq"`
	Stop        bool   `json:"stop,omitempty"`
	Export      bool   `json:"export,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Correlation string `json:"correlation,omitempty"`
	Traceparent string `json:"traceparent,omitempty"`
}

// maxRefused bounds what is kept for parking: the stream itself keeps the rest.
const maxRefused = 1000

func requestsOf(bzid, job string) follow.View[requests] {
	subject := training.Subject(bzid, job)
	return follow.View[requests]{
		Name: "requests", Version: 2,
		New: func() requests { return requests{} },
		Fold: func(s requests, r events.Recorded) requests {
			if r.Seq <= s.Seq {
				return s
			}
			s.Seq = r.Seq
			switch {
			case r.Subject == subject.Request():
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

func (s requests) asked(r events.Recorded) requests {
	q := request{ID: r.Header.ID, Seq: r.Seq, Correlation: r.Header.Correlation, Traceparent: r.Header.Traceparent}
	e, _ := r.Event.(*training.Event)
	switch b := e.GetBody().(type) {
	case *training.Event_CheckpointRequested:
		q.Export, q.Reason = b.CheckpointRequested.GetExport(), b.CheckpointRequested.GetReason()
	case *training.Event_StopRequested:
		q.Stop, q.Reason = true, b.StopRequested.GetReason()
	case *training.Event_StartRequested:
		if !s.Stopped {
			return s.refuse(r, "the job is not stopped: there is nothing to start")
		}
		q.Reason = b.StartRequested.GetReason()
		s.Start = &q
		return s
	default:
		reason := "the job answers checkpointRequested, stopRequested and startRequested only"
		if r.Err != nil {
			reason = r.Err.Error()
		}
		return s.refuse(r, reason)
	}
	if s.Stopped {
		return s.refuse(r, "the job is stopped: publish startRequested first")
	}
	switch n := len(s.Open); {
	case n > 0 && s.Open[n-1].Stop:
		return s // answered by the stop, as is what is open besides
	case n > 0 && !q.Stop:
		q.Export = q.Export || s.Open[n-1].Export
		s.Open = []request{q} // one cut answers both
	default:
		s.Open = append(s.Open[:n:n], q)
	}
	return s
}

func (s requests) refuse(r events.Recorded, reason string) requests {
	s.Refused = append(s.Refused, bus.Parked{
		Reason: reason, By: source, Stream: "MONOLITH", StreamSeq: r.Seq, Subject: string(r.Subject), Data: r.Data,
	})
	if n := len(s.Refused); n > maxRefused {
		s.Refused = append([]bus.Parked(nil), s.Refused[n-maxRefused:]...)
	}
	return s
}

// answered closes what the fact answers. A checkpoint that a request caused answers that
// request and all before it; a request to stop is answered by jobStopped alone, which
// leaves nothing open.
func (s requests) answered(r events.Recorded) requests {
	e, _ := r.Event.(*training.Event)
	switch e.GetBody().(type) {
	case *training.Event_JobStarted:
		s.Stopped, s.Start = false, nil
	case *training.Event_JobStopped:
		s.Open, s.Stopped, s.Start = nil, true, nil
	case *training.Event_CheckpointSaved, *training.Event_CheckpointFailed:
		var open []request
		for _, q := range s.Open {
			if q.Stop || q.ID != r.Header.Causation {
				open = append(open, q)
			}
		}
		s.Open = open
	}
	return s
}
