package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/loadtest/demo"
	"github.com/monolith-go/monolith/projections/fleet"
)

// boot starts everything as a person does: servers first, then the portal, which makes the streams,
// then the others; the model is declared, learnt a little, and loaded.
func (w *world) boot() *traffic {
	w.t.Helper()
	for _, m := range w.machines {
		m.boot()
	}
	for _, m := range w.machines {
		m.named("nats").ready()
	}
	wait.Until(w.t, "the topics to be made", func() error { // which takes all three brokers
		return kafka.Plain.EnsureTopics(w.soon(), w.kafka.Bootstrap, map[string]int32{host.RatingsTopic: partitions, "predictions": 1})
	})
	job, err := demo.OpenJob(w.soon(), w.operator())
	w.must("open the job", err)
	w.t.Cleanup(func() { _ = job.Close() })
	w.must("declare the model", job.Declare(w.soon(), modelspec.MovieRanking()))
	f := newTraffic(w, job, w.machines[0].at(grpcPort), w.machines[1].at(grpcPort))
	for range 1000 {
		f.write()
	}
	w.must("write ratings", f.ratings.Flush(w.soon()))
	_, err = job.AwaitExport(w.soon())
	w.must("wait for the first export", err)
	_, err = job.Load(w.soon(), &model.Load{ModelName: host.ModelName, ModelDir: host.Exports(w.data, host.JobName), Job: host.JobName, Replicas: replicas})
	w.must("load the model", err)
	w.well(job)
	return f
}

// well waits until everything is as it should be.
func (w *world) well(job *demo.Job) {
	w.t.Helper()
	for _, m := range w.machines {
		for _, k := range m.tasks {
			k.ready()
		}
	}
	w.inSync()
	wait.Until(w.t, "every replica to serve", func() (err error) {
		job.Fleet.Read(func(s fleet.State) {
			entries, rows := 0, 0
			for _, r := range s.Replicas {
				switch v := r.Replica.V; {
				case !r.Alive || v.GetModelName() != host.ModelName || v.GetStat().String() != "AVAILABLE":
				case v.GetServerType() == "entry":
					entries++
				default:
					rows++
				}
			}
			if entries != replicas || rows != shards*replicas {
				err = fmt.Errorf("%d entries and %d replicas of shards serve", entries, rows)
			}
		})
		return err
	})
}

// inSync waits until each broker has all of the ratings.
func (w *world) inSync() {
	w.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Bootstrap...))
	w.must("make a client", err)
	defer c.Close()
	wait.Until(w.t, "Kafka's replicas to be in sync", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		req := kmsg.NewPtrMetadataRequest()
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(host.RatingsTopic)
		req.Topics = append(req.Topics, topic)
		res, err := req.RequestWith(ctx, c)
		if err != nil {
			return err
		}
		for _, p := range res.Topics[0].Partitions {
			if len(p.ISR) != machineCount {
				return fmt.Errorf("partition %d is on %v", p.Partition, p.ISR)
			}
		}
		if len(res.Topics[0].Partitions) != partitions {
			return fmt.Errorf("%d partitions", len(res.Topics[0].Partitions))
		}
		return nil
	})
}

// faults are all of them as often as there are rounds; without any, one of a machine. MONOLITH_SOAK_FAULTS
// has those alone whose names it matches, as they stand.
func faults(w *world, rng *rand.Rand, rounds int) (all []fault) {
	machines, processes := w.machineFaults(), w.processFaults()
	if only := os.Getenv("MONOLITH_SOAK_FAULTS"); only != "" {
		name := regexp.MustCompile(only)
		return slices.DeleteFunc(slices.Concat(machines, processes), func(x fault) bool { return !name.MatchString(x.name) })
	}
	for range rounds {
		round := slices.Concat(machines, processes)
		rng.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		all = append(all, round...)
	}
	if rounds < 1 {
		all = append(all, machines[rng.IntN(len(machines))])
	}
	return all
}

// TestThreeMachines has people rate, ask and command while each machine and each process is killed, cut
// off, paused and restarted, one after the other: MONOLITH_SOAK times all of it in an order drawn anew,
// or one fault of a machine. Nothing that was acked is lost, and each rating is learnt once. In a soak,
// which has the machine for itself, 999 of 1,000 predictions are answered, too, and after each fault
// writes are acked again within 10 s.
func TestThreeMachines(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv("MONOLITH_SOAK"))
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("MONOLITH_SOAK_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("seed %d (MONOLITH_SOAK_SEED repeats it)", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	began := time.Now()
	w := newWorld(t)
	f := w.boot()
	t.Logf("everything serves after %v", time.Since(began).Round(time.Second))
	f.soak = os.Getenv("MONOLITH_SOAK") != "" || os.Getenv("MONOLITH_SOAK_FAULTS") != ""
	if f.soak {
		f.flow(500, 200)
	} else {
		f.flow(100, 40)
	}
	f.warm()
	began = time.Now()
	for _, x := range faults(w, rng, rounds) {
		f.suffer(x)
	}
	f.stop()
	f.told(time.Since(began))
	f.settled()
}
