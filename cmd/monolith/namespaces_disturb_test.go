package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/archiving"
)

// neighbour is a namespace in which everything goes wrong: each role is a process.
type neighbour struct {
	*opsWorld
	zk     *zk.Conn
	killed map[string]int // pid by task
	hung   []procID
	salt   int // tells what is done again from what was done
}

func newNeighbour(g *ground, bzid string) *neighbour {
	g.t.Setenv(binaryEnv, "1") // the children of this process are monolith
	cfg := g.config(bzid)
	cfg.Processes, cfg.Checkpoints = true, 2*time.Second
	n := &neighbour{opsWorld: opsStart(g.t, cfg, g.agent), killed: map[string]int{}}
	g.t.Cleanup(n.wake)
	n.load()
	n.zk = zkClient(n.opsWorld)
	return n
}

func (n *neighbour) pid(task string) int {
	n.t.Helper()
	p := &played{dir: n.Config.Dir}
	var pid int
	n.until(task+" to be up", func() (bool, string) { pid = p.pid(task, os.Getpid()); return pid != 0, "it is not" })
	return pid
}

// kill kills -9 what runs the tasks; nobody waits for their successors.
func (n *neighbour) kill(tasks ...string) {
	n.t.Helper()
	for _, task := range tasks {
		pid := n.pid(task)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			n.t.Fatalf("kill %s: %v", task, err)
		}
		n.killed[task] = pid
	}
}

// hang stops a model server: it lives, and answers nobody.
func (n *neighbour) hang(task string) {
	n.t.Helper()
	n.until("the model server of "+task, func() (bool, string) {
		for _, p := range descendants(n.pid(task)) {
			if syscall.Kill(p.pid, syscall.SIGSTOP) == nil {
				n.hung = append(n.hung, p)
			}
		}
		return len(n.hung) > 0, "it has none"
	})
}

// wake lets those that hang go on.
func (n *neighbour) wake() {
	for _, p := range n.hung {
		if p.alive() {
			_ = syscall.Kill(p.pid, syscall.SIGCONT) // gone meanwhile is as good
		}
	}
	n.hung = nil
}

// garbage is published everywhere in the namespace: what is no event, what nobody knows,
// requests in vain and facts of strangers.
func (n *neighbour) garbage() {
	n.t.Helper()
	n.salt++
	nc := n.plain()
	for _, x := range []struct{ subject, body string }{
		{"model.movies.request", "not json"},
		{"model.movies.request", fmt.Sprintf(`{"loadRequested":{"load":{"modelName":"movies","modelDir":"/nowhere/%d"}}}`, n.salt)},
		{"model.movies", `{"dance":{}}`},
		{"model.movies", fmt.Sprintf(`{"unloadAccepted":{"reason":"a stranger %d"}}`, n.salt)},
		{"publish.movies", `{"withdrawn":{"modelName":"movies","reason":"a stranger"}}`},
		{"container.serving-0-0", `{"lost":{"reason":"a stranger"}}`},
		{"training.movies.request", `{"checkpointRequested":{"reason":"a stranger"}}`},
		{"znode.tree", "\x00\xff"},
	} {
		n.publish(nc, "monolith."+n.Config.Logs.BZID+"."+x.subject, []byte(x.body))
	}
}

// declare has models declared by whoever asks: another one, and the job's own anew.
func (n *neighbour) declare() {
	n.t.Helper()
	code, _, errs := n.tool("declare", n.spec("private"))
	if code != exitOK {
		n.t.Fatalf("declare: exit %d %s", code, errs)
	}
	if code, _, _ = n.tool("declare", n.spec(host.ModelName)); code == exitOK {
		n.t.Error("the model of a running job was declared anew")
	}
	_, err := n.job.Load(n.soon(), &model.Load{ModelName: "private", ModelDir: n.Exports(), Job: host.JobName, Replicas: 1})
	n.must("load another model", err)
}

// spec is a file that declares a model of that name, which begins with other parameters.
func (n *neighbour) spec(name string) string {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "internal", "model", "modelspec", "testdata", "movies.yaml"))
	n.must("read the sample", err)
	text = bytes.Replace(bytes.Replace(text, []byte("name: movies"), []byte("name: "+name), 1), []byte("seed: 1"), []byte("seed: 2"), 1)
	path := filepath.Join(n.t.TempDir(), name+".yaml")
	n.must("write a declaration", os.WriteFile(path, text, 0o600))
	return path
}

// flood writes ratings, records of the year 2102 and what is none.
func (n *neighbour) flood() {
	n.t.Helper()
	n.rate(4000)
	late, none := n.record(0), n.record(1)
	late.Time, none.Value = time.Date(2102, 1, 1, 0, 0, 0, 0, time.UTC), []byte("{")
	n.write(late, none)
}

// fill fills the namespace's share of the stream, of which little is left.
func (n *neighbour) fill() {
	n.t.Helper()
	js, err := jetstream.New(n.plain())
	n.must("open JetStream", err)
	s, err := js.Stream(n.soon(), "MONOLITH_DLQ")
	n.must("look at the letters", err)
	limits := s.CachedInfo().Config
	limits.MaxBytes = 1 << 20
	_, err = js.UpdateStream(n.soon(), limits)
	n.must("limit the letters", err)
	for i := range 64 {
		seq, err := n.job.Bus.DeadLetters().Park(n.soon(), bus.Parked{Reason: "bad", By: "portal", Stream: fmt.Sprintf("kafka:t%d/0", i%16), StreamSeq: uint64(i/16 + 1),
			Subject: "t", Data: bytes.Repeat([]byte{'x'}, 16<<10)})
		n.must("park a letter", err)
		if seq == 0 {
			return // there is no room: it is counted
		}
	}
	if !strings.Contains(fmt.Sprint(n.letters()), "More:0x") {
		n.t.Error("the letters' share is not full")
	}
}

// trim archives the log, all namespaces', and removes what is archived.
func (n *neighbour) trim(dir string) {
	n.t.Helper()
	if code, out, errs := opsTool("archive", "--dir", dir, "--nats", n.Config.Logs.NATS); code != exitOK {
		n.t.Fatalf("archive: exit %d, %s%s", code, out, errs)
	}
	conn := n.Config.Logs
	conn.Archive = dir
	var said bytes.Buffer
	if err := archiving.Trim(n.soon(), conn, 0, time.Nanosecond, true, &said); err != nil || !strings.Contains(said.String(), "events were removed") {
		n.t.Fatalf("trim: %v: %s", err, &said)
	}
}

// nodes are written, by the names that the player's have, watched and left behind.
func (n *neighbour) nodes() {
	n.t.Helper()
	n.salt++
	open := zk.WorldACL(zk.PermAll)
	for _, path := range []string{"/app-0", "/app-1", "/app-2", "/two", "/two/portal", "/two/portal/extra"} {
		n.until("the tree to take "+path, func() (bool, string) { // its registry may have been killed
			_, err := n.zk.Create(path, []byte("of "+n.Config.Logs.BZID), 0, open)
			return err == nil || errors.Is(err, zk.ErrNodeExists), fmt.Sprint(err)
		})
	}
	for i := range 50 {
		_, err := n.zk.Create(fmt.Sprintf("/burst-%d-%d", n.salt, i), make([]byte, 1<<10), zk.FlagEphemeral, open)
		n.must("create a node", err)
	}
	if _, err := n.zk.Multi(&zk.SetDataRequest{Path: "/two", Data: []byte("again"), Version: -1}, &zk.DeleteRequest{Path: "/two/portal/extra", Version: -1}); err != nil {
		n.t.Fatalf("a multi: %v", err)
	}
}

// recover ends what can be ended, and waits until the namespace is as well as before.
func (n *neighbour) recover() {
	n.t.Helper()
	n.wake()
	for task, pid := range n.killed {
		n.until(task+" to be up again", func() (bool, string) { return n.pid(task) != pid, "it is not" })
	}
	n.until("the tree to answer its client", func() (bool, string) {
		_, _, err := n.zk.Exists("/")
		return err == nil, fmt.Sprint(err)
	})
	n.learnt()
	n.load()
	n.agree()
}

// abort writes records in a transaction that comes to nothing.
func (n *neighbour) abort() {
	n.t.Helper()
	n.salt++
	c, err := kgo.NewClient(kgo.SeedBrokers(n.Brokers()...), kgo.TransactionalID(fmt.Sprint("t", n.salt)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	n.must("dial Kafka", err)
	defer c.Close()
	n.must("begin", c.BeginTransaction())
	n.must("write", c.ProduceSync(n.soon(), &kgo.Record{Topic: n.Config.Topics.Ratings, Value: opsRating(0).AppendJSON(nil)}).FirstErr())
	n.must("abort", c.EndTransaction(n.soon(), kgo.TryAbort))
}

// addPartition makes the topic of ratings one partition larger.
func (n *neighbour) addPartition() {
	n.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(n.Brokers()...))
	n.must("dial Kafka", err)
	defer c.Close()
	topic := kmsg.NewCreatePartitionsRequestTopic()
	now, err := kafka.Plain.Partitions(n.soon(), n.Brokers(), n.Config.Topics.Ratings)
	n.must("look at the topic", err)
	topic.Topic, topic.Count = n.Config.Topics.Ratings, now+1
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis, req.Topics = 5000, append(req.Topics, topic)
	res, err := req.RequestWith(n.soon(), c)
	if err == nil {
		err = kerr.ErrorForCode(res.Topics[0].ErrorCode)
	}
	n.must("add a partition", err)
	n.Config.Partitions++
}
