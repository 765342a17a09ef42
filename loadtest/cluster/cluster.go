// Package cluster is a whole stack of real processes in a temporary folder, which load tests start,
// disturb while they measure it, and end.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/process/child"
	"github.com/monolith-go/monolith/loadtest/demo"
)

const (
	bzid = "loadtest"
	// startPatience is for many processes on a machine that does other work, too.
	startPatience = 5 * time.Minute
	stopPatience  = 30 * time.Second
	poll          = 20 * time.Millisecond
	// learnt is how many ratings the model knows before it is served.
	learnt = 20_000
	// logTail is how much of a process' last words an error has.
	logTail = 4 << 10
)

// Config is the size of a cluster.
type Config struct {
	Shards, Replicas int
	Seed             uint64                           // of the ratings that it learns
	Say              func(format string, args ...any) // how the start gets on
}

// Cluster is a running stack that serves the movie-ranking model.
type Cluster struct {
	cfg     Config
	dir     string
	up      *process
	job     *demo.Job
	entry   *replica.Replica
	ratings *ratings
}

// Start runs the stack, teaches its model, and returns once every replica serves it.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	dir, err := os.MkdirTemp("", "monolith-loadtest-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg, dir: dir}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := c.start(ctx); err != nil {
		err = fmt.Errorf("start %d shards with %d replicas each: %w%s", cfg.Shards, cfg.Replicas, err, c.lastWords())
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) (err error) {
	n := strconv.Itoa
	if c.up, err = launch(filepath.Join(c.dir, "up.log"), "up", "--processes", "--dir", c.dir, "--nats", "", "--kafka", "", "--archive", "", "--bzid", bzid, "--checkpoint-interval", "0",
		"--nats-port", "0", "--kafka-port", "0", "--zk-port", "0", "--grpc-port", "0", "--rest-port", "0", "--shards", n(c.cfg.Shards), "--replicas", n(c.cfg.Replicas), "--trainers", "1"); err != nil {
		return err
	}
	c.cfg.Say("%d shards with %d replicas each are starting, a process each, in %s", c.cfg.Shards, c.cfg.Replicas, c.dir)
	running, err := c.announced(ctx)
	if err != nil {
		return err
	}
	if c.job, err = demo.OpenJob(ctx, connect.Config{NATS: running.NATS, BZID: bzid, Level: "error"}); err != nil {
		return err
	}
	spec := modelspec.MovieRanking()
	if err := c.job.Declare(ctx, spec); err != nil {
		return err
	}
	if c.ratings, err = newRatings(running.Kafka, host.Topics{}.Of(bzid).Ratings, c.cfg.Seed); err != nil {
		return err
	}
	ends, err := c.ratings.write(ctx, learnt)
	if err != nil {
		return err
	}
	if err := c.job.AwaitTrained(ctx, c.cfg.Shards, ends, func(int64) {}); err != nil {
		return err
	}
	if _, err := c.job.Checkpoint(ctx, "before the load"); err != nil {
		return err
	}
	c.entry, err = c.job.Serve(ctx, host.Exports(c.dir, host.JobName), demo.Size{Shards: c.cfg.Shards, Replicas: c.cfg.Replicas}, spec, c.cfg.Say)
	return err
}

// GRPC is the entry's port of that, host:port.
func (c *Cluster) GRPC() string { return c.entry.GetGrpcAddress() }

// REST is its port of HTTP.
func (c *Cluster) REST() string { return c.entry.GetHttpAddress() }

// announced waits until the stack says where its logs are.
func (c *Cluster) announced(ctx context.Context) (r host.Running, err error) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		if r, err = host.ReadRunning(c.dir); err == nil {
			return r, nil
		}
		select {
		case <-tick.C:
		case <-c.up.Ended():
			return r, fmt.Errorf("monolith up ended: %w", errors.Join(errors.New("it was to run on"), c.up.Wait()))
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}

// lastWords are what the stack wrote last.
func (c *Cluster) lastWords() string {
	said, err := os.ReadFile(filepath.Join(c.dir, "up.log"))
	if said = bytes.TrimSpace(said); err != nil || len(said) == 0 {
		return ""
	}
	return "; monolith up said: " + string(said[max(0, len(said)-logTail):])
}

// Close ends all processes and removes the folder.
func (c *Cluster) Close() error {
	var errs []error
	if c.ratings != nil {
		c.ratings.close()
	}
	if c.job != nil {
		errs = append(errs, c.job.Close())
	}
	if c.up != nil {
		c.up.stop()
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// process is a process of this binary.
type process struct {
	*child.Child
	cmd *exec.Cmd
}

// launch starts one, with what it says in a file.
func launch(log string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the process has its own descriptor
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = out, out
	running, err := child.Start(cmd, nil)
	if err != nil {
		return nil, err
	}
	return &process{running, cmd}, nil
}

// stop has it drain, and kills it where that takes too long.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // gone already is as good
	kill := time.AfterFunc(stopPatience, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	<-p.Ended()
}
