package product

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/nn"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/ps"
	"github.com/monolith-go/monolith/services/trainer"
)

const (
	trainBZID, trainName, trainTopic = "bench", "bench", "samples"

	trainShards     = 2
	trainPartitions = 2
	trainBatch      = 512
)

// Vias are the roads from a trainer to its shards.
var Vias = []string{"process", "unix", "tcp"}

// trainJob is a training job around an embedded Kafka broker, its facts on a bus in memory: one
// trainer, and shards that it reaches by one road.
type trainJob struct {
	bus     *mem.Bus
	broker  *kafka.Broker
	metrics *prometheus.Registry
	dir     string
	stop    context.CancelFunc
	done    *errgroup.Group
	ended   context.Context // when a role has
}

func startTrainJob(ctx context.Context, spec *model.ModelSpec, via string) (_ *trainJob, err error) {
	dir, err := os.MkdirTemp("", "monolith-bench-")
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	j := &trainJob{bus: mem.New(), metrics: prometheus.NewRegistry(), dir: dir, stop: stop}
	j.done, j.ended = errgroup.WithContext(run)
	defer func() {
		if err != nil {
			err = errors.Join(err, j.Close())
		}
	}()
	if j.broker, err = kafka.StartBroker(kafka.BrokerConfig{Dir: filepath.Join(dir, "kafka"), Topics: map[string]int32{trainTopic: trainPartitions}}); err != nil {
		return nil, err
	}
	if _, err := j.bus.Log().Append(ctx, bus.Draft{Subject: model.Subject(trainBZID, spec.GetName()), Expect: bus.Any,
		Event: &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: spec}}}}); err != nil {
		return nil, err
	}
	env := services.Env{BZID: trainBZID, Bus: j.bus, Log: slog.New(slog.DiscardHandler), Lanes: nn.NewLanes(0)}
	if via == "process" {
		env.Local = rowwire.NewLocal()
	}
	for i := range trainShards {
		cfg := ps.Config{Job: trainName, Model: spec.GetName(), Shard: i, Shards: trainShards, Dir: filepath.Join(dir, "job"), SyncInterval: time.Second}
		if via != "tcp" {
			cfg.Listen = fmt.Sprintf("unix://%s/rows%d", dir, i)
		}
		s, err := ps.New(cfg, env)
		if err != nil {
			return nil, err
		}
		if err := j.run(run, s); err != nil {
			return nil, err
		}
	}
	env.Metrics, env.Bus = j.metrics, farBus{j.bus}
	t, err := trainer.New(trainer.Config{Job: trainName, Model: spec.GetName(), Brokers: []string{j.broker.Addr()}, Topic: trainTopic,
		Shards: trainShards, Batch: trainBatch, Pipeline: 1, Dir: filepath.Join(dir, "job")}, env)
	if err != nil {
		return nil, err
	}
	return j, j.run(run, t)
}

// run starts a role and waits until it is ready.
func (j *trainJob) run(ctx context.Context, r services.Role) error {
	j.done.Go(func() error { return r.Run(ctx) })
	select {
	case <-r.Ready():
		return nil
	case <-j.ended.Done():
		return errors.New("a role of the job has ended before it was ready")
	}
}

// learn gives the job records and waits until they are learnt. It returns the rate, from when all are
// stored.
func (j *trainJob) learn(ctx context.Context, records []kafka.Record) (float64, error) {
	before, err := j.learnt()
	if err != nil {
		return 0, err
	}
	if _, err := produce(ctx, []string{j.broker.Addr()}, trainTopic, records); err != nil {
		return 0, err
	}
	began := time.Now()
	first, err := j.learnt()
	if err != nil {
		return 0, err
	}
	all := before + float64(len(records))
	for {
		n, err := j.learnt()
		if err != nil {
			return 0, err
		}
		if n >= all {
			return (n - first) / time.Since(began).Seconds(), nil
		}
		select {
		case <-time.After(startPoll):
		case <-j.ended.Done():
			return 0, errors.New("a role of the job has ended")
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// learnt is how many samples the trainer has learnt or parked.
func (j *trainJob) learnt() (n float64, err error) {
	families, err := j.metrics.Gather()
	for _, f := range families {
		switch f.GetName() {
		case "monolith_trainer_samples_total":
			n += f.GetMetric()[0].GetCounter().GetValue()
		case "monolith_trainer_rejected_total":
			if parked := f.GetMetric()[0].GetCounter().GetValue(); parked > 0 {
				return 0, fmt.Errorf("%g records were parked", parked)
			}
		}
	}
	return n, err
}

func (j *trainJob) Close() error {
	j.stop()
	err := j.done.Wait()
	if j.broker != nil {
		err = errors.Join(err, j.broker.Close())
	}
	return errors.Join(err, j.bus.Close(), os.RemoveAll(j.dir))
}

// farBus hides the sockets that shards have beside their ports.
type farBus struct{ bus.Bus }

func (b farBus) Log() bus.Log { return farLog{b.Bus.Log()} }

type farLog struct{ bus.Log }

func (l farLog) Follow(ctx context.Context, from, to uint64, f func(events.Recorded) error) error {
	return l.Log.Follow(ctx, from, to, func(r events.Recorded) error {
		if e, ok := r.Event.(*shard.Event); ok && e.GetReady() != nil {
			e = proto.CloneOf(e)
			e.GetReady().NearAddresses = nil
			r.Event = e
		}
		return f(r)
	})
}
