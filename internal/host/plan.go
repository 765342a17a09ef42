package host

import (
	"cmp"
	"fmt"
	"net"
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

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// snapshots are the flags of a task that keeps its views' snapshots.
func (s *Stack) snapshots(name string) []string {
	return []string{"--snapshot-dir", s.path("snapshots", name)}
}

// control is a task that drains last.
func (s *Stack) control(name string, args ...string) []Task {
	return []Task{{Name: name, control: true, Args: slices.Concat(s.snapshots(name), args)}}
}

func portalTasks(s *Stack) []Task    { return s.control("portal") }
func publisherTasks(s *Stack) []Task { return s.control("publisher") }

func registryTasks(s *Stack) []Task {
	return s.control("replica-registry", append(s.Config.zkFlags(), "--zk-listen", loopback(s.Config.ZKPort))...)
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
	serving := func(name string, shard, replica int, kind, grpc, rest string) Task {
		return Task{Name: name, Args: []string{"--container", name, "--server-type", kind,
			"--shard", strconv.Itoa(shard), "--replica", strconv.Itoa(replica), "--host", hostName, "--server-dir", s.path("servers", name)},
			Server: append(s.Config.KafkaAccess.Args(), "--grpc", grpc, "--http", rest, "--kafka", s.Config.Kafka, "--predictions-topic", s.Config.Topics.Predictions, "--base-dir", s.path("copies"))}
	}
	tasks := []Task{serving("entry-0", -1, 0, "entry", loopback(s.Config.GRPCPort), loopback(s.Config.RESTPort))}
	for shard := range s.Config.Shards {
		for replica := range s.Config.Replicas {
			tasks = append(tasks, serving(fmt.Sprintf("serving-%d-%d", shard, replica), shard, replica, "ps", loopback(0), loopback(0)))
		}
	}
	return tasks
}

func shardTasks(s *Stack) (tasks []Task) {
	n := strconv.Itoa
	for shard := range s.Config.Shards {
		tasks = append(tasks, Task{Name: "ps-" + n(shard), Args: append(s.snapshots("ps-"+n(shard)),
			"--job", s.Config.job(), "--model", s.Config.model(), "--shard", n(shard), "--shards", n(s.Config.Shards), "--dir", s.path("training", s.Config.job()),
			"--sync-interval", s.Config.Sync.String(), "--deterministic="+strconv.FormatBool(s.Config.Deterministic))})
	}
	return tasks
}

func trainerTasks(s *Stack) (tasks []Task) {
	n, c := strconv.Itoa, s.Config
	for i := range c.Trainers {
		args := []string{"--job", s.Config.job(), "--model", s.Config.model(), "--name", "trainer-" + n(i), "--index", n(i)}
		if !c.NoKafka {
			args = append(append(args, c.KafkaAccess.Args()...), "--kafka", c.Kafka, "--topic", c.Topics.Ratings, "--label-range", "0,5", "--time-field", "timestamp")
		}
		args = append(args, c.Restore.Args()...)
		tasks = append(tasks, Task{Name: "trainer-" + n(i), Args: append(args,
			"--format", cmp.Or(c.Format, input.JSON.String()), "--shards", n(c.Shards), "--dir", s.path("training", s.Config.job()),
			"--batch", n(c.Batch), "--linger", c.Linger.String(),
			"--checkpoint-every", c.Checkpoints.String(), "--deterministic="+strconv.FormatBool(c.Deterministic))})
	}
	return tasks
}
