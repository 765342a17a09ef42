package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/loadtest/demo"
	"github.com/monolith-go/monolith/projections/lineage"
)

// idles says whether the log has a trainer that waits for the job's start.
func idles(log, trainer string) bool {
	for line := range strings.Lines(log) {
		if strings.Contains(line, trainer) && strings.Contains(line, "it goes on once startRequested is published") {
			return true
		}
	}
	return false
}

// jobStopped lasts: what starts ended roles again starts no stopped job.
func TestStoppedJobStaysStoppedUnderUp(t *testing.T) {
	w := opsStart(t, opsConfig(t.TempDir()))
	j := w.job
	request := func(e *training.Event) {
		t.Helper()
		subject := events.Join(w.Config.Logs.BZID, "training", host.JobName).Request()
		if _, err := j.Bus.Log().Append(w.ctx, bus.Draft{Subject: subject, Event: e, Expect: bus.Any}); err != nil {
			t.Fatal(err)
		}
	}
	is := func(cond func(lineage.Job) bool) {
		t.Helper()
		if err := demo.Await(w.soon(), j.Lineage, func(s lineage.State) bool { return cond(s.Jobs[host.JobName]) }); err != nil {
			t.Fatal(err)
		}
	}
	request(&training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{Reason: "for good"}}})
	is(func(j lineage.Job) bool { return j.Stopped })
	w.until("every trainer was started again and waits", func() (bool, string) {
		for i := range w.Config.Trainers {
			if trainer := fmt.Sprintf("trainer=trainer-%d", i); !idles(w.log.String(), trainer) {
				return false, trainer
			}
		}
		return true, ""
	})
	is(func(j lineage.Job) bool { return j.Stopped })
	request(&training.Event{Body: &training.Event_StartRequested{StartRequested: &training.StartRequested{Reason: "again"}}})
	is(func(j lineage.Job) bool { return !j.Stopped })
}
