package requests

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// folding is a log of requests and answers, and the state that it folds to.
type folding struct {
	t    *testing.T
	view follow.View[State]
	s    State
	seq  uint64
}

// fold folds the next event, once more than once; nil is one that nobody can read.
func (f *folding) fold(subject events.Subject, id, causation string, e *training.Event) {
	f.t.Helper()
	f.seq++
	r := events.Recorded{Subject: subject, Seq: f.seq, Event: e, Header: events.Header{ID: id, Causation: causation}}
	if e == nil {
		r.Event, r.Err = nil, errors.New("what nobody can read")
	}
	f.s = f.view.Fold(f.s, r)
	if again := f.view.Fold(f.s, r); fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", f.s) {
		f.t.Errorf("redelivered, event %d changes something", f.seq)
	}
}

// check fails unless these requests are open, and so many refused.
func (f *folding) check(what, want string, refused int) {
	f.t.Helper()
	var open []string
	for _, q := range f.s.Open {
		open = append(open, fmt.Sprintf("%s stop %v export %v", q.ID, q.Stop, q.Export))
	}
	if got := strings.Join(open, "; "); got != want || len(f.s.Refused) != refused {
		f.t.Errorf("%s: open %q, want %q; %d refused, want %d", what, got, want, len(f.s.Refused), refused)
	}
}

var (
	stop    = &training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{}}}
	start   = &training.Event{Body: &training.Event_StartRequested{StartRequested: &training.StartRequested{}}}
	saved   = &training.Event{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{}}}
	failed  = &training.Event{Body: &training.Event_CheckpointFailed{CheckpointFailed: &training.CheckpointFailed{}}}
	stopped = &training.Event{Body: &training.Event_JobStopped{JobStopped: &training.JobStopped{}}}
	started = &training.Event{Body: &training.Event_JobStarted{JobStarted: &training.JobStarted{}}}
)

func checkpoint(export bool) *training.Event {
	return &training.Event{Body: &training.Event_CheckpointRequested{CheckpointRequested: &training.CheckpointRequested{Export: export}}}
}

// What requests become of each other, and what the facts of the job answer.
func TestRequestsAreFolded(t *testing.T) {
	view := View(trainertest.BZID, trainertest.Job, anybody)
	f := &folding{t: t, view: view, s: view.New()}
	job := events.Join(trainertest.BZID, "training", trainertest.Job)
	f.fold(job.Request(), "a", "", checkpoint(true))
	f.check("one", "a stop false export true", 0)
	f.fold(job.Request(), "b", "", checkpoint(false))
	f.check("two in one", "b stop false export true", 0)
	f.fold(job, "", "a", saved)
	f.check("another's answer", "b stop false export true", 0)
	f.fold(job.Request(), "c", "", stop)
	f.check("and a stop", "b stop false export true; c stop true export false", 0)
	f.fold(job.Request(), "d", "", checkpoint(true))
	f.check("behind a stop", "b stop false export true; c stop true export false", 0)
	f.fold(job.Request(), "e", "", start)
	f.check("nothing to start", "b stop false export true; c stop true export false", 1)
	f.fold(job, "", "b", failed)
	f.check("answered", "c stop true export false", 1)
	f.fold(job, "", "c", saved)
	f.check("a stop is not answered by a checkpoint", "c stop true export false", 1)
	if f.fold(job, "", "c", stopped); !f.s.Stopped || f.s.Start != nil {
		t.Errorf("%+v", f.s)
	}
	f.check("stopped", "", 1)
	f.fold(job.Request(), "f", "", checkpoint(false))
	f.check("asked of a stopped job", "", 2)
	if f.fold(job.Request(), "g", "", start); f.s.Start == nil || f.s.Start.ID != "g" {
		t.Errorf("start: %+v", f.s.Start)
	}
	if f.fold(job, "", "g", started); f.s.Stopped || f.s.Start != nil {
		t.Errorf("started: %+v", f.s)
	}
	f.fold(job, "", "", nil)
	f.check("what nobody can read", "", 3)
	f.fold(job.Request(), "h", "", nil)
	f.check("nor this", "", 4)
	f.fold(events.Join(trainertest.BZID, "training", trainertest.Job+"/a").Request(), "i", "", stop)
	f.check("asked of a trainer", "", 5)
	for _, elsewhere := range []events.Subject{events.Join(trainertest.BZID, "training", trainertest.Job+"x"), events.Join("other", "training", trainertest.Job), events.Join(trainertest.BZID, "model", trainertest.Job), events.Join(trainertest.BZID, "training", "x/"+trainertest.Job)} {
		f.fold(elsewhere, "", "", nil)
		f.check(string(elsewhere), "", 5)
	}
}

// One checkpoint answers a request to keep it and the others that are open.
func TestRequestsToKeepAreOne(t *testing.T) {
	keep := &training.Event{Body: &training.Event_CheckpointRequested{CheckpointRequested: &training.CheckpointRequested{Keep: true}}}
	for _, order := range [][]*training.Event{{keep, checkpoint(true)}, {checkpoint(true), keep}} {
		view := View(trainertest.BZID, trainertest.Job, anybody)
		f := &folding{t: t, view: view, s: view.New()}
		job := events.Join(trainertest.BZID, "training", trainertest.Job)
		for i, e := range order {
			f.fold(job.Request(), string(rune('a'+i)), "", e)
		}
		if open := f.s.Open; len(open) != 1 || !open[0].Keep || !open[0].Export {
			t.Errorf("open are %+v", open)
		}
	}
}

// What is refused and not parked yet is bounded: the oldest go.
func TestRefusalsAreBounded(t *testing.T) {
	var s State
	for range maxRefused + 3 {
		s = s.refuse(events.Recorded{Seq: 1}, "x")
	}
	if len(s.Refused) != maxRefused {
		t.Errorf("%d are kept for parking", len(s.Refused))
	}
	full := State{Refused: make([]bus.Parked, maxRefused-1)}
	if full = full.refuse(events.Recorded{}, "x"); len(full.Refused) != maxRefused {
		t.Errorf("%d of %d are kept", len(full.Refused), maxRefused)
	}
}

// A request that comes again has the answer of the first: nothing is owed for it, whatever
// became of the job meanwhile. Who it is from, and what it asks, is part of what it is.
func TestRequestsOfOneID(t *testing.T) {
	view := View(trainertest.BZID, trainertest.Job, anybody)
	f := &folding{t: t, view: view, s: view.New()}
	job := events.Join(trainertest.BZID, "training", trainertest.Job)
	f.fold(job.Request(), "x", "", checkpoint(true))
	f.fold(job.Request(), "x", "", checkpoint(true))
	f.check("again, before the answer", "x stop false export true", 0)
	f.fold(job, "", "x", saved)
	f.check("answered", "", 0)
	f.fold(job.Request(), "x", "", checkpoint(true))
	f.check("again, behind the answer", "", 0)
	f.fold(job.Request(), "y", "", checkpoint(false))
	f.fold(job.Request(), "z", "", checkpoint(false))
	f.fold(job, "", "z", failed)
	f.fold(job.Request(), "y", "", checkpoint(false))
	f.check("one that another's cut answered", "", 0)
	f.fold(job.Request(), "x", "", stop)
	f.check("another request under the same id", "x stop true export false", 0)
	f.fold(job, "", "x", stopped)
	f.fold(job.Request(), "x", "", checkpoint(true))
	f.fold(job.Request(), "x", "", stop)
	f.check("again, at a stopped job", "", 0)
	f.fold(job.Request(), "w", "", checkpoint(true))
	f.check("new, at a stopped job", "", 1)
	f.fold(job.Request(), "s", "", start)
	f.fold(job, "", "s", started)
	f.fold(job.Request(), "s", "", start)
	f.fold(job.Request(), "x", "", stop)
	f.check("again, at a job that runs again", "", 1)
	f.fold(job.Request(), "w", "", checkpoint(true))
	f.check("what was refused may be asked again", "w stop false export true", 1)
	f.seq++
	f.s = f.view.Fold(f.s, events.Recorded{Subject: job.Request(), Seq: f.seq, Event: checkpoint(false), Header: events.Header{ID: "x", Source: "another"}})
	f.check("of another source", "x stop false export true", 1)
}

// How many are known is bounded: the oldest are forgotten.
func TestTakenRequestsAreBounded(t *testing.T) {
	view := View(trainertest.BZID, trainertest.Job, anybody)
	f := &folding{t: t, view: view, s: view.New()}
	job := events.Join(trainertest.BZID, "training", trainertest.Job)
	for i := range maxTaken + 3 {
		f.fold(job.Request(), fmt.Sprint(i), "", checkpoint(false))
	}
	if len(f.s.Taken) != maxTaken || f.s.Taken[0].ID != "3" {
		t.Errorf("%d are known, from %s", len(f.s.Taken), f.s.Taken[0].ID)
	}
}

// A pause and its end wait for no checkpoint: the newest request answers those before it.
func TestHoldsAreFolded(t *testing.T) {
	view := View(trainertest.BZID, trainertest.Job, anybody)
	f := &folding{t: t, view: view, s: view.New()}
	job := events.Join(trainertest.BZID, "training", trainertest.Job)
	pause := &training.Event{Body: &training.Event_PauseRequested{PauseRequested: &training.PauseRequested{Reason: "r"}}}
	resume := &training.Event{Body: &training.Event_ResumeRequested{ResumeRequested: &training.ResumeRequested{}}}
	paused := &training.Event{Body: &training.Event_JobPaused{JobPaused: &training.JobPaused{}}}
	resumed := &training.Event{Body: &training.Event_JobResumed{JobResumed: &training.JobResumed{}}}
	holds := func(what, id string, pause, paused bool, refused int) {
		t.Helper()
		got := ""
		if f.s.Hold != nil {
			got = f.s.Hold.ID
		}
		if got != id || id != "" && f.s.Hold.Pause != pause || f.s.Paused != paused || len(f.s.Refused) != refused {
			t.Errorf("%s: %+v", what, f.s)
		}
	}
	f.fold(job.Request(), "a", "", resume)
	holds("nothing to resume", "", false, false, 1)
	f.fold(job.Request(), "b", "", checkpoint(false))
	f.fold(job.Request(), "c", "", pause)
	holds("beside a checkpoint", "c", true, false, 1)
	f.check("the checkpoint is owed all the same", "b stop false export false", 1)
	f.fold(job.Request(), "d", "", pause)
	holds("asked for already", "c", true, false, 2)
	f.fold(job, "", "c", paused)
	holds("paused", "", false, true, 2)
	f.fold(job.Request(), "e", "", pause)
	holds("paused already", "", false, true, 3)
	f.fold(job.Request(), "f", "", resume)
	f.fold(job.Request(), "g", "", pause)
	holds("the newest counts", "g", true, true, 3)
	f.fold(job, "", "", resumed)
	holds("a command's answer leaves the request open", "g", true, false, 3)
	f.fold(job, "", "g", paused)
	holds("answered", "", false, true, 3)
	f.fold(job, "", "", stopped)
	holds("a stop ends the pause", "", false, false, 3)
	f.fold(job.Request(), "h", "", pause)
	holds("of a stopped job", "", false, false, 4)
}

// anybody may ask.
func anybody(events.Recorded) (events.Asked, error) { return events.Asked{}, nil }

// TestWhoAsksIsChecked: where it is known who may ask, others' requests are letters with the reason,
// and the job does nothing of them.
func TestWhoAsksIsChecked(t *testing.T) {
	subject := training.Subject(trainertest.BZID, trainertest.Job)
	f := &folding{t: t, view: View(trainertest.BZID, trainertest.Job, func(r events.Recorded) (events.Asked, error) {
		if r.Header.ID == "stranger" {
			return events.Asked{}, fmt.Errorf("%w: the command is not signed", events.ErrInvalid)
		}
		return events.Asked{By: "operator"}, nil
	})}
	f.s = f.view.New()
	f.fold(subject.Request(), "stranger", "", stop)
	f.check("a stranger's stop", "", 1)
	if reason := f.s.Refused[0].Reason; !strings.Contains(reason, "is not signed") {
		t.Errorf("refused because %q", reason)
	}
	f.fold(subject.Request(), "operator", "", checkpoint(true))
	f.check("an operator's checkpoint", "operator stop false export true", 1)
	f.fold(subject.Request(), "stranger", "", nil)
	f.check("what nobody can read", "operator stop false export true", 2)
}
