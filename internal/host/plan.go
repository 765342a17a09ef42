package host

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/input"
)

// plan lists the roles with the very flags that a pod would give them.
func (s *Stack) plan() []Task {
	var tasks []Task
	for _, r := range Roles {
		if r.tasks == nil {
			continue
		}
		for _, t := range r.tasks(s) {
			t.Role = r.Name
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// snapshots are the flags of a task that keeps its views' snapshots.
func (s *Stack) snapshots(name string) []string {
	return []string{"--snapshot-dir", s.path("snapshots", name)}
}

// control is a task that drains last.
func (s *Stack) control(name string, args ...string) []Task {
	return []Task{{Name: name, control: true, Args: slices.Concat(s.snapshots(name), args)}}
}

func portalTasks(s *Stack) []Task { return s.control("portal") }

// publisherTasks measures canaries where there is a Kafka.
func publisherTasks(s *Stack) []Task {
	if s.Config.NoKafka {
		return s.control("publisher")
	}
	c := s.Config
	return s.control("publisher", append(c.KafkaAccess.Args(), "--kafka", c.Kafka, "--ratings-topic", c.Topics.Ratings, "--predictions-topic", c.Topics.Predictions,
		"--format", cmp.Or(c.Format, input.JSON.String()))...)
}

func registryTasks(s *Stack) []Task {
	p := &s.Config.Ports
	return s.control("replica-registry", slices.Concat(s.Config.zkFlags(), []string{"--zk-listen", p.at(s.Config.ZKPort), "--listen", p.at(0)}, p.flags("zk", "agent"))...)
}

// zkFlags are those of the ZooKeeper port that were given.
func (c Config) zkFlags() (args []string) {
	if len(c.ZKWords) > 0 {
		args = append(args, "--zk-words", strings.Join(c.ZKWords, ","))
	}
	if c.ZKSuper != "" {
		args = append(args, "--zk-super-digest-file", c.ZKSuper)
	}
	return args
}

func syncTasks(s *Stack) []Task {
	return s.control("model-sync", "--host", hostName, "--dir", s.path("copies"))
}

// servingTasks are the entry and each replica of each serving shard.
func servingTasks(s *Stack) []Task {
	p := &s.Config.Ports
	serving := func(name string, shard, replica int, kind, grpc, rest string) Task {
		return Task{Name: name, Args: []string{"--container", name, "--server-type", kind,
			"--shard", strconv.Itoa(shard), "--replica", strconv.Itoa(replica), "--host", hostName, "--server-dir", s.path("servers", name)},
			Server: append(append(s.Config.KafkaAccess.Args(), "--grpc", grpc, "--http", rest, "--rows", p.at(0), "--kafka", s.Config.Kafka, "--predictions-topic", s.Config.Topics.Predictions, "--base-dir", s.path("copies")),
				p.flags("grpc", "rest", "rows")...)}
	}
	tasks := []Task{serving("entry-0", -1, 0, "entry", p.at(s.Config.GRPCPort), p.at(s.Config.RESTPort))}
	for shard := range s.Config.Shards {
		for replica := range s.Config.Replicas {
			tasks = append(tasks, serving(fmt.Sprintf("serving-%d-%d", shard, replica), shard, replica, "ps", p.at(0), p.at(0)))
		}
	}
	return tasks
}

func shardTasks(s *Stack) (tasks []Task) {
	n := strconv.Itoa
	for shard := range s.Config.Shards {
		tasks = append(tasks, Task{Name: "ps-" + n(shard), Args: append(slices.Concat(s.snapshots("ps-"+n(shard)), s.Config.Ports.flags("rows"), s.Config.Health.Args()),
			"--listen", s.Config.Ports.at(0), "--job", s.Config.job(), "--model", s.Config.model(), "--shard", n(shard), "--shards", n(s.Config.Shards), "--dir", s.path("training", s.Config.job()),
			"--sync-interval", s.Config.Sync.String(), "--deterministic="+strconv.FormatBool(s.Config.Deterministic))})
	}
	return tasks
}

func trainerTasks(s *Stack) (tasks []Task) {
	n, c := strconv.Itoa, s.Config
	for i := range c.Trainers {
		args := []string{"--job", s.Config.job(), "--model", s.Config.model(), "--name", "trainer-" + n(i), "--index", n(i)}
		if !c.NoKafka {
			args = append(append(args, c.KafkaAccess.Args()...), "--kafka", c.Kafka, "--topic", c.Topics.Ratings, "--predictions-topic", c.Topics.Predictions, "--label-range", "0,5", "--time-field", "timestamp")
		}
		args = append(args, c.Restore.Args()...)
		tasks = append(tasks, Task{Name: "trainer-" + n(i), Args: append(args,
			"--format", cmp.Or(c.Format, input.JSON.String()), "--shards", n(c.Shards), "--dir", s.path("training", s.Config.job()),
			"--batch", n(c.Batch), "--linger", c.Linger.String(),
			"--checkpoint-every", c.Checkpoints.String(), "--checkpoint-steps", strconv.FormatInt(c.CheckpointSteps, 10), "--dump-features="+strconv.FormatBool(c.DumpFeatures), "--deterministic="+strconv.FormatBool(c.Deterministic))})
	}
	return tasks
}
