package cluster

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/server"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/loadtest/demo"
	"github.com/monolith-go/monolith/projections/fleet"
)

// Say is told what happens, at the moment when it does.
type Say func(format string, args ...any)

// A Disturbance happens to a cluster under load, for so long where it lasts. It returns when it is
// over, or once ctx ends; what it began it has undone then.
type Disturbance func(c *Cluster, ctx context.Context, lasts time.Duration, say Say) error

// Disturbances are all there are, by name.
var Disturbances = map[string]Disturbance{
	"slow": (*Cluster).slow, "kill": (*Cluster).kill, "swap": (*Cluster).swap, "deltas": (*Cluster).deltas,
}

// The replica that is disturbed is the last one of shard 0.
func (c *Cluster) victim() string { return fmt.Sprintf("serving-0-%d", c.cfg.Replicas-1) }

const (
	// late is how long a slow replica is stopped at a time, and runs how long it runs in between:
	// a request to it waits for late in the worst case, and for half of it on average.
	late = 100 * time.Millisecond
	runs = 5 * time.Millisecond
	// storm is how many ratings a second are learnt, each of which changes many rows.
	storm = 5000
)

// slow stops a replica again and again, as a machine does that has too little of something.
func (c *Cluster) slow(ctx context.Context, lasts time.Duration, say Say) error {
	pid, err := c.pid(ctx, c.victim())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	say("%s is slow: stops of %v", c.victim(), late)
	defer say("%s runs again", c.victim())
	for ctx.Err() == nil {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return fmt.Errorf("stop %s, process %d: %w", c.victim(), pid, err)
		}
		_ = retry.Sleep(ctx, late) // a load that ends ends the loop
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			return fmt.Errorf("have %s go on, process %d: %w", c.victim(), pid, err)
		}
		_ = retry.Sleep(ctx, runs)
	}
	return nil
}

// kill kills a replica for good; its supervisor starts another process.
func (c *Cluster) kill(ctx context.Context, _ time.Duration, say Say) error {
	pid, err := c.pid(ctx, c.victim())
	if err != nil {
		return err
	}
	var before uint64
	c.job.Fleet.Read(func(s fleet.State) { before = s.Seq })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s, process %d: %w", c.victim(), pid, err)
	}
	say("%s is killed", c.victim())
	err = demo.Await(ctx, c.job.Fleet, func(s fleet.State) bool {
		r := c.served(s, c.victim())
		return r != nil && r.Seq > before
	})
	if err == nil {
		say("%s serves again", c.victim())
	}
	return over(err)
}

// served is a container's replica, where it is available.
func (c *Cluster) served(s fleet.State, container string) *fleet.Replica {
	for _, r := range s.Replicas {
		if r.Alive && r.Replica.V.GetContainer() == container && r.Replica.V.GetStat() == replica.State_AVAILABLE {
			return &r
		}
	}
	return nil
}

// swap exports another version and has it loaded in place of the one that is served.
func (c *Cluster) swap(ctx context.Context, _ time.Duration, say Say) error {
	// A cut that was begun is finished, whenever the load ends.
	cut, cancel := context.WithTimeout(context.WithoutCancel(ctx), startPatience)
	defer cancel()
	version, err := c.job.Checkpoint(cut, "under load")
	if err != nil {
		return fmt.Errorf("export another version: %w", err)
	}
	if _, err := c.job.Load(cut, &model.Load{ModelName: host.ModelName, ModelDir: host.Exports(c.dir, host.JobName), Version: version, Job: host.JobName, Replicas: uint32(c.cfg.Replicas)}); err != nil {
		return fmt.Errorf("load version %d: %w", version, err)
	}
	say("version %d is to be loaded", version)
	err = demo.Await(ctx, c.job.Fleet, func(s fleet.State) bool {
		n := 0
		for _, r := range s.Replicas {
			if r.Alive && r.Replica.V.GetStat() == replica.State_AVAILABLE && r.Replica.V.GetVersion() >= version {
				n++
			}
		}
		return n > c.cfg.Shards*c.cfg.Replicas // and the entry
	})
	if err == nil {
		say("every server has version %d", version)
	}
	return over(err)
}

// deltas has the model learn as fast as it is told.
func (c *Cluster) deltas(ctx context.Context, lasts time.Duration, say Say) error {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	say("%d ratings a second are learnt", storm)
	defer say("nothing more is learnt")
	return over(c.ratings.pour(ctx, storm))
}

// over is no error where the load has ended meanwhile.
func over(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// pid is that of a container's model server, by the facts of its supervisor.
func (c *Cluster) pid(ctx context.Context, container string) (pid int, err error) {
	log := c.job.Bus.Log()
	last, err := log.Last(ctx)
	if err != nil {
		return 0, err
	}
	subject := server.Subject(bzid, container)
	err = log.Follow(ctx, 1, last, func(r events.Recorded) error {
		e, ok := r.Event.(*server.Event)
		if !ok || r.Subject != subject {
			return nil
		}
		switch b := e.GetBody().(type) {
		case *server.Event_ProcessStarted:
			pid = int(b.ProcessStarted.GetPid())
		case *server.Event_ProcessExited:
			pid = 0
		}
		return nil
	})
	if err == nil && pid == 0 {
		err = fmt.Errorf("%s runs no process", container)
	}
	return pid, err
}
