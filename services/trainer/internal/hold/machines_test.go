package hold

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
)

// TestBarrier: a job pauses once for each failure, goes on when no machine fails any more, and neither
// resumes what somebody has paused nor pauses again what somebody has resumed.
func TestBarrier(t *testing.T) {
	running := lineage.Job{Started: events.JSON[*training.JobStarted]{V: &training.JobStarted{Shards: 2}}}
	job := func(paused lineage.Pause, guarded uint64) lineage.Job {
		j := running
		j.Paused, j.Guarded = paused, guarded
		return j
	}
	stopped := running
	stopped.Stopped = true
	shards := func(failures ...uint64) map[uint32]fleet.Shard {
		m := map[uint32]fleet.Shard{}
		for i, seq := range failures {
			m[uint32(i)] = fleet.Shard{Healthy: true, Machine: fleet.MachineFailure{Seq: seq, Status: "OUT_OF_MEMORY", Reason: "used up"}}
		}
		return m
	}
	for name, tc := range map[string]struct {
		job    lineage.Job
		shards map[uint32]fleet.Shard
		pauses uint64
		goesOn bool
	}{
		"all is well":                        {running, shards(0, 0), 0, false},
		"no shard is known":                  {running, nil, 0, false},
		"a machine fails":                    {running, shards(0, 7), 7, false},
		"one that the job no longer has":     {running, shards(0, 0, 7), 0, false},
		"paused for one of them":             {job(lineage.Pause{Seq: 8, For: 7}, 7), shards(0, 0, 7), 0, true},
		"two do":                             {running, shards(9, 7), 9, false},
		"not started":                        {lineage.Job{}, shards(7), 0, false},
		"stopped":                            {stopped, shards(7), 0, false},
		"paused for it":                      {job(lineage.Pause{Seq: 8, For: 7}, 7), shards(7), 0, false},
		"another one joins":                  {job(lineage.Pause{Seq: 8, For: 7}, 7), shards(7, 9), 0, false},
		"recovered":                          {job(lineage.Pause{Seq: 8, For: 7}, 7), shards(0), 0, true},
		"one of two recovered":               {job(lineage.Pause{Seq: 8, For: 7}, 7), shards(0, 9), 0, false},
		"resumed by hand":                    {job(lineage.Pause{}, 7), shards(7), 0, false},
		"resumed by hand, and it fails anew": {job(lineage.Pause{}, 7), shards(12), 12, false},
		"paused by hand":                     {job(lineage.Pause{Seq: 5}, 0), shards(7), 0, false},
		"paused by hand, all is well":        {job(lineage.Pause{Seq: 5}, 4), shards(0), 0, false},
	} {
		e := barrier(tc.job, tc.shards)
		if e.GetJobPaused().GetMachineFailed() != tc.pauses || (e.GetJobResumed() != nil) != tc.goesOn {
			t.Errorf("%s: %v", name, e)
		}
		if e != nil {
			if err := e.Validate("job"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	many := map[uint32]fleet.Shard{}
	for i := range uint32(10_000) {
		many[i] = fleet.Shard{Machine: fleet.MachineFailure{Seq: 7, Reason: strings.Repeat("ä", 1000)}}
	}
	running.Started.V.Shards = 10_000
	e := barrier(running, many)
	if err := e.Validate("job"); err != nil || len(e.GetJobPaused().GetReason()) > maxReason+10 {
		t.Errorf("%d bytes of reason, %v", len(e.GetJobPaused().GetReason()), err)
	}
}
