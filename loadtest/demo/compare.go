package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/loadtest/audit"
	"github.com/monolith-go/monolith/loadtest/report"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

// agreePatience is how long replicas may take to catch up with a job at rest.
const agreePatience = 2 * time.Minute

// compare sets whether every serving replica holds exactly the rows of the last
// checkpoint.
func (d *driver) compare(ctx context.Context) error {
	var saved *training.Checkpoint
	d.job.Lineage.Read(func(s lineage.State) {
		if cs := s.Jobs[host.JobName].Checkpoints; len(cs) > 0 {
			saved = cs[len(cs)-1].V
		}
	})
	truth, err := audit.Truth(nil, saved)
	if err != nil {
		return fmt.Errorf("read the last checkpoint: %w", err)
	}
	deadline := time.Now().Add(agreePatience)
	for {
		checks, err := d.job.Agree(ctx, d.spec.GetName(), truth, d.stack.Config.Shards)
		if err == nil && len(checks) >= d.stack.Config.Shards*d.stack.Config.Replicas && audit.Passed(checks) {
			d.report.ReplicasAgree = true
			return nil
		}
		if time.Now().After(deadline) {
			d.ui.say("replicas disagree with the training shards: %v", errors.Join(err, audit.Failed(checks)))
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Agree compares all rows of each serving replica of the model, by its public port.
func (j *Job) Agree(ctx context.Context, model string, truth *audit.Rows, shards int) ([]audit.Check, error) {
	serving, hangUp, err := j.Serving(ctx, model)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	var checks []audit.Check
	for _, r := range serving {
		checks = append(checks, truth.Agree(ctx, r, shards))
	}
	return checks, nil
}

// Serving dials each serving replica of the model, as the roles do; hangUp ends the connections.
func (j *Job) Serving(ctx context.Context, model string) (all []audit.Replica, hangUp func(), err error) {
	pool := rowwire.NewPool(j.Rows)
	for key, r := range j.Replicas(model) {
		c, err := pool.Get(ctx, r.GetRowsAddress())
		if err != nil {
			pool.Close()
			return nil, nil, fmt.Errorf("replica %s: %w", key, err)
		}
		all = append(all, audit.Replica{Name: key, Model: model, Shard: uint32(r.GetTask()), Rows: c})
	}
	return all, pool.Close, nil
}

// Replicas are the parameter-server replicas that serve a model now.
func (j *Job) Replicas(model string) map[string]*replica.Replica {
	out := map[string]*replica.Replica{}
	j.Fleet.Read(func(s fleet.State) {
		for key, r := range s.Replicas {
			v := r.Replica.V
			if r.Alive && v.GetModelName() == model && v.GetServerType() == "ps" && v.GetStat() == replica.State_AVAILABLE {
				out[key] = v
			}
		}
	})
	return out
}

// settleApplied waits until model-sync has said of every replica that it applied the
// last delta of every training shard, so that freshness is taken of all ratings.
func (j *Job) settleApplied(ctx context.Context, model string, shards int) error {
	var last uint64
	for i := range shards {
		seq, err := j.Bus.Deltas().LastOf(ctx, bus.DeltaSubject(j.Conn.BZID, host.JobName, strconv.Itoa(i)))
		if err != nil {
			return err
		}
		last = max(last, seq)
	}
	ctx, cancel := context.WithTimeout(ctx, agreePatience)
	defer cancel()
	for {
		h, err := audit.ReadHistory(ctx, j.Bus.Log(), j.Conn.BZID, host.JobName, 0)
		if err != nil {
			return err
		}
		reached := map[string]uint64{}
		for _, a := range h.Applied {
			reached[a.Container] = max(reached[a.Container], a.SyncSeq)
		}
		all := true
		for _, r := range j.Replicas(model) {
			all = all && reached[r.GetContainer()] >= last
		}
		if all {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("model-sync has not reported all deltas as applied, which stand at %d; it has %v: %w", last, reached, ctx.Err())
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// LiveHashes asks the roles for the state of the views that they decide on.
func (j *Job) LiveHashes(ctx context.Context) (map[string]report.ViewHash, error) {
	hashes := map[string]report.ViewHash{}
	for view, role := range map[string]string{models.Name: "portal", plan.Name: "publisher", fleet.Name: "registry", view.Name: "registry",
		lineage.Name: "trainer." + events.Escape(host.JobName)} {
		var h report.ViewHash
		if err := j.Call(ctx, role+".state", map[string]string{"view": view}, &h); err != nil {
			return nil, err
		}
		hashes[view] = h
	}
	return hashes, nil
}
