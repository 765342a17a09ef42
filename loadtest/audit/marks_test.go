package audit

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/shard"
)

// TestMarksOfARun are what was lost and what began again behind the run's start; who leaves as it
// should is none.
func TestMarksOfARun(t *testing.T) {
	w := newWorld(t, tamper{})
	reported := func(id string, began int64) {
		w.append("container", id, &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: &container.Container{Id: id, Kind: "serving", StartedUs: began}}}})
	}
	reported("serving-0-0", 1)
	reported("serving-0-0", 1)
	w.append("container", "serving-0-0", &container.Event{Body: &container.Event_Lost{Lost: &container.Lost{Reason: "no heartbeat"}}})
	reported("serving-0-0", 2)
	w.append("container", "serving-0-1", &container.Event{Body: &container.Event_Lost{Lost: &container.Lost{Reason: "stopped", Left: true}}})
	w.append("shard", shard.Aggregate(job, 1), &shard.Event{Body: &shard.Event_Ready{Ready: &shard.Ready{Job: job, Shard: 1, Shards: 2, Epoch: 2, RowsAddress: "127.0.0.1:1"}}})
	h, err := ReadHistory(t.Context(), w.bus.Log(), bzid, job, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range h.Marks {
		if m.At.IsZero() {
			t.Errorf("%s has no time", m.Text)
		}
		got = append(got, m.Text)
	}
	want := []string{"serving-0-0 lost", "serving-0-0 began again", "training shard 1 began again"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%s", diff, fmt.Sprint(got))
	}
}
