package doctor

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
)

// TestMachines: a shard whose machine fails a check is a finding of its own while the shard works, and none of a job
// that has stopped.
func TestMachines(t *testing.T) {
	f := fleet.State{Shards: map[string]map[uint32]fleet.Shard{"movies": {
		0: {Healthy: true},
		1: {Healthy: true, Machine: fleet.MachineFailure{Seq: 7, Status: "OUT_OF_MEMORY", Reason: "98 of 100 MiB are in use"}},
	}}}
	job := lineage.Job{Started: events.JSON[*training.JobStarted]{V: &training.JobStarted{}}}
	found := func() []Finding {
		e := new(examination)
		e.shards(f, lineage.State{Jobs: map[string]lineage.Job{"movies": job}})
		return e.findings
	}
	if got := found(); len(got) != 1 || got[0].OK || !strings.Contains(got[0].Says, "shard 1") || !strings.Contains(got[0].Says, "98 of 100 MiB") {
		t.Errorf("found %+v", got)
	}
	f.Shards["movies"][1] = fleet.Shard{Healthy: true}
	if got := found(); len(got) != 1 || !got[0].OK {
		t.Errorf("of machines that are well: %+v", got)
	}
	job.Stopped = true
	if got := found(); len(got) != 0 {
		t.Errorf("of a job that has stopped: %+v", got)
	}
}
