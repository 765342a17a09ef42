package demo

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/registry"
)

// Job drives the main job as a user would: by commands, and by looking at the views.
type Job struct {
	Conn    connect.Config
	Rows    *tls.Config // for rows ports, as the roles have it; nil: plain text
	Bus     bus.Bus
	Catalog *follow.Follower[models.State]
	Fleet   *follow.Follower[fleet.State]
	Lineage *follow.Follower[lineage.State]
	stop    context.CancelFunc
	done    *errgroup.Group
}

// OpenJob connects and follows the views; Close ends both.
func OpenJob(ctx context.Context, conn connect.Config) (*Job, error) {
	b, err := conn.Dial(ctx, "monolith job")
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	j := &Job{Conn: conn, Bus: b, stop: stop, done: new(errgroup.Group),
		Catalog: follow.New(b.Log(), registry.Catalog.Only(conn.BZID), follow.Options{}),
		Fleet:   follow.New(b.Log(), registry.Fleet.Only(conn.BZID), follow.Options{}),
		Lineage: follow.New(b.Log(), registry.Lineage.Only(conn.BZID), follow.Options{})}
	j.done.Go(func() error { return j.Catalog.Run(run) })
	j.done.Go(func() error { return j.Fleet.Run(run) })
	j.done.Go(func() error { return j.Lineage.Run(run) })
	for _, ready := range []<-chan struct{}{j.Catalog.Ready(), j.Fleet.Ready(), j.Lineage.Ready()} {
		select {
		case <-ready:
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), j.Close())
		}
	}
	return j, nil
}

// Close ends the views and the connection.
func (j *Job) Close() error {
	j.stop()
	err := j.done.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, j.Bus.Close())
}

// Declare makes a model known, so that training can begin. What is served is the user's to say.
func Declare(ctx context.Context, conn connect.Config, spec *model.ModelSpec) error {
	j, err := OpenJob(ctx, conn)
	if err != nil {
		return err
	}
	return errors.Join(j.Declare(ctx, spec), j.Close())
}

// Call sends a command, again and again while nobody answers it yet.
func (j *Job) Call(ctx context.Context, command string, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return j.callRaw(ctx, command, body, reply)
}

// ask is call for what is answered at once. Whoever was asked may have been killed before
// it answered, so it is asked again soon.
func (j *Job) ask(ctx context.Context, command string, reply any) error {
	return j.callWithin(ctx, askPatience, command, []byte("{}"), reply)
}

const (
	callPatience = 30 * time.Second
	askPatience  = 3 * time.Second
)

func (j *Job) callRaw(ctx context.Context, command string, body []byte, reply any) error {
	return j.callWithin(ctx, callPatience, command, body, reply)
}

// callWithin calls until ctx ends, each time for as long as patience.
func (j *Job) callWithin(ctx context.Context, patience time.Duration, command string, body []byte, reply any) error {
	raw, err := connect.Call(ctx, j.Bus, j.Conn.BZID, command, body, patience)
	if err != nil || reply == nil {
		return err
	}
	return json.Unmarshal(raw, reply)
}

type seqReply struct {
	Seq uint64 `json:"seq"`
}

// Declare declares spec, unless the model is declared already.
func (j *Job) Declare(ctx context.Context, spec *model.ModelSpec) error {
	var known bool
	j.Catalog.Read(func(s models.State) { known = s.Models[spec.GetName()].Spec.V != nil })
	if known {
		return nil
	}
	body, err := events.Marshal(&model.DeclareRequested{Spec: spec})
	if err != nil {
		return err
	}
	var r seqReply
	if err := j.callRaw(ctx, "portal.declare", body, &r); err != nil {
		return err
	}
	return j.Catalog.Wait(ctx, r.Seq) // so that Declared sees it
}

// Declared is true when the model stands as spec says.
func (j *Job) Declared(spec *model.ModelSpec) (same bool) {
	j.Catalog.Read(func(s models.State) { same = proto.Equal(s.Models[spec.GetName()].Spec.V, spec) })
	return same
}

// Load asks for a model and answers with the fact's sequence.
func (j *Job) Load(ctx context.Context, l *model.Load) (uint64, error) {
	body, err := events.Marshal(l)
	if err != nil {
		return 0, err
	}
	var r seqReply
	return r.Seq, j.callRaw(ctx, "portal.load", body, &r)
}

func (j *Job) loaded(name string) (yes bool) {
	j.Catalog.Read(func(s models.State) { yes = s.Models[name].Load.V != nil })
	return yes
}

// AwaitExport waits until the job has exported anything, and returns the newest version.
func (j *Job) AwaitExport(ctx context.Context) (version int64, err error) {
	err = Await(ctx, j.Lineage, func(s lineage.State) bool {
		exports := s.Jobs[host.JobName].Exports
		if len(exports) == 0 {
			return false
		}
		version = exports[len(exports)-1].V.GetVersion()
		return true
	})
	return version, err
}

// Checkpoint asks for a cut with an export and returns its version.
func (j *Job) Checkpoint(ctx context.Context, reason string) (int64, error) {
	var r struct {
		Checkpoint int64  `json:"checkpoint"`
		Seq        uint64 `json:"seq"`
	}
	if err := j.Call(ctx, "trainer."+events.Escape(host.JobName)+".checkpoint", map[string]any{"reason": reason, "export": true}, &r); err != nil {
		return 0, err
	}
	return r.Checkpoint, j.Lineage.Wait(ctx, r.Seq)
}

// AwaitServing waits until the entry and every replica of every shard serve the model,
// and returns the entry's address.
func (j *Job) AwaitServing(ctx context.Context, name string, shards, replicas int) (entry *replica.Replica, err error) {
	err = Await(ctx, j.Fleet, func(s fleet.State) bool {
		entry = nil
		available := 0
		for _, r := range s.Replicas {
			if !r.Alive || r.Replica.V.GetModelName() != name || r.Replica.V.GetStat() != replica.State_AVAILABLE {
				continue
			}
			if r.Replica.V.GetServerType() == "entry" {
				entry = r.Replica.V
			} else {
				available++
			}
		}
		return entry != nil && available >= shards*replicas
	})
	return entry, err
}

// Trained returns, per partition, the least offset that every training shard has learnt.
func (j *Job) Trained(ctx context.Context, shards int) (map[int32]int64, error) {
	least := map[int32]int64{}
	for i := range shards {
		var st struct {
			Next map[int32]int64 `json:"next"`
		}
		if err := j.ask(ctx, fmt.Sprintf("ps.%s.%d.offsets", events.Escape(host.JobName), i), &st); err != nil {
			return nil, err
		}
		if i == 0 {
			maps.Copy(least, st.Next)
			continue
		}
		for p := range least {
			least[p] = min(least[p], st.Next[p]) // a partition that a shard does not name stands at 0
		}
	}
	return least, nil
}

// AwaitTrained waits until all shards have learnt everything below ends, and tells
// progress how many records that is so far.
func (j *Job) AwaitTrained(ctx context.Context, shards int, ends map[int32]int64, progress func(int64)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		least, err := j.Trained(ctx, shards)
		if err != nil {
			return err
		}
		var sum int64
		all := true
		for p, end := range ends {
			sum += least[p]
			all = all && least[p] >= end
		}
		progress(sum)
		if all {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the trainers, which stand at %v of %v: %w", least, ends, ctx.Err())
		case <-tick.C:
		}
	}
}

// Await returns once the view satisfies cond.
func Await[S any](ctx context.Context, f *follow.Follower[S], cond func(S) bool) error {
	for {
		changed := f.Changed()
		var ok bool
		f.Read(func(s S) { ok = cond(s) })
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
