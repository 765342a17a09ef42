package trainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
	"github.com/monolith-go/monolith/services/trainer/requests"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

// A roll-back asks every shard, and ends what was under way only once all have heard it.
func TestRollbackAsksEveryShard(t *testing.T) {
	for _, refuses := range []int{-1, 0, 1} {
		w := busOnly(t)
		var mu sync.Mutex
		asked := map[int]shardcmd.RollbackRequest{}
		trainertest.Commands(t, w.b, 2, func(i int, endpoint string, payload []byte) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			var r shardcmd.RollbackRequest
			if err := json.Unmarshal(payload, &r); err != nil || endpoint != shardcmd.Rollback {
				t.Errorf("%s: %v", endpoint, err)
			}
			asked[i] = r
			if i == refuses {
				return nil, bus.Refuse(bus.CodeInternal, "no checkpoint can be read")
			}
			return shardcmd.State{}, nil
		})
		cfg := w.alone()
		cfg.Shards = 2
		err := (&learner{s: w.view(cfg), partition: 3}).rollback(t.Context(), shards.Position{Generation: 4})
		if refuses < 0 && !errors.Is(err, shards.ErrMoved) || refuses >= 0 && (errors.Is(err, shards.ErrMoved) || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("roll back shard %d", refuses))) {
			t.Errorf("shard %d refuses: %v", refuses, err)
		}
		for i := range 2 {
			if r := asked[i]; r.Generation != 4 || r.Reason != "partition 3: the shards stand apart" {
				t.Errorf("shard %d was asked %+v", i, r)
			}
		}
	}
}

// What a cut of an earlier chief, or before a return of the job, has made stands for nothing.
func TestACheckpointThatWasOvertakenIsNone(t *testing.T) {
	for name, meanwhile := range map[string]*training.Event{
		"another began one":       {Body: &training.Event_CheckpointStarted{CheckpointStarted: &training.CheckpointStarted{Id: 9}}},
		"the job has returned":    {Body: &training.Event_JobRestored{JobRestored: &training.JobRestored{Checkpoint: 1, Reason: "it diverged"}}},
		"nothing that matters":    nil,
		"a topic's new partition": {Body: &training.Event_TopicUpdated{TopicUpdated: &training.TopicUpdated{Partitions: 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := busOnly(t)
				s := w.view(w.alone())
				b := s.started()
				b.Partitions = 1
				w.started(b)
				shard := trainertest.Shards(t, w.b, 0)[0]
				shard.Snapshotted = func() {
					if meanwhile != nil {
						w.append(jobSubject(), meanwhile)
					}
				}
				w.caughtUp(s)
				id, _, err := s.chief().Term(1).Checkpoint(t.Context(), requests.Request{Reason: "now"})
				overtaken := name == "another began one" || name == "the job has returned"
				if id != 1 || (err != nil) != overtaken || err != nil && !strings.Contains(err.Error(), "meanwhile") {
					t.Errorf("checkpoint %d, %v", id, err)
				}
				var j lineage.Job
				s.lineage.Read(func(l lineage.State) { j = l.Jobs[theJob] })
				if (len(j.Checkpoints) == 0) != overtaken {
					t.Errorf("checkpoints %v", j.Checkpoints)
				}
			})
		})
	}
}

// The first checkpoint waits for shards that are ready and take no commands yet.
func TestTheFirstCheckpointWaitsForCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := busOnly(t)
		s := w.view(w.alone())
		w.started(s.started())
		w.ready(0, 1, 1, 0, "h:1")
		var early atomic.Int32
		one := &trainertest.Scripted{State: shardcmd.State{Next: map[int32]int64{0: 5}}}
		trainertest.Commands(t, w.b, 1, func(_ int, endpoint string, payload []byte) (any, error) {
			if early.Add(1) <= 3 {
				return nil, bus.Refuse(bus.CodeUnavailable, "soon")
			}
			return one.Command(endpoint, payload)
		})
		w.caughtUp(s)
		if err := s.chief().Term(1).RetryCheckpoint(t.Context(), requests.Request{Reason: "start of the job"}); err != nil {
			t.Error(err)
		}
		if j := s.job(); len(j.Checkpoints) != 1 || len(j.Checkpoints[0].V.GetOffsets()) != 1 {
			t.Errorf("checkpoints %v", j.Checkpoints)
		}
	})
}
