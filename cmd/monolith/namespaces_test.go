package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/loadtest/audit"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

// ground is one NATS, one Kafka and one set of ports, for any number of stacks.
type ground struct {
	t              *testing.T
	nats, kafka    string
	zk, grpc, rest int // wanted by each
	agents         map[string]int
	dir            string
}

func newGround(t *testing.T, dir string) *ground {
	t.Helper()
	g := &ground{t: t, dir: dir, agents: map[string]int{}}
	logs := t.TempDir()
	srv, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(logs, "nats")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	broker, err := kafka.StartBroker(kafka.BrokerConfig{Dir: filepath.Join(logs, "kafka")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Close() })
	g.nats, g.kafka = srv.URL(), broker.Addr()
	for _, port := range []*int{&g.zk, &g.grpc, &g.rest} {
		if *port, err = freeport.Find(); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// config is of a stack of that namespace on this ground.
func (g *ground) config(bzid string) host.Config {
	cfg := opsConfig(filepath.Join(g.dir, bzid))
	cfg.Logs.BZID, cfg.Logs.NATS, cfg.Kafka, cfg.Spans = bzid, g.nats, g.kafka, false
	cfg.ZKPort, cfg.GRPCPort, cfg.RESTPort, cfg.ZKWords = g.zk, g.grpc, g.rest, []string{"*"}
	cfg.Replicas, cfg.Trainers = 1, 1
	return cfg
}

// agent has the registry serve its agents too.
func (g *ground) agent(w *opsWorld) {
	port, err := freeport.Find()
	if err != nil {
		g.t.Fatal(err)
	}
	g.agents[w.Config.Logs.BZID] = port
	giveFlags(w, "replica-registry", "--listen", "127.0.0.1:"+strconv.Itoa(port))
}

// giveFlags adds to those of a role.
func giveFlags(w *opsWorld, role string, more ...string) {
	for i, task := range w.Tasks {
		if task.Role == role {
			w.Tasks[i].Args = append(task.Args, more...)
		}
	}
}

// steady keeps a busy machine out of the log: who is late is not lost for it, and deltas
// are published at the cuts alone, so that there are as many in every run.
func steady(w *opsWorld) {
	giveFlags(w, "replica-registry", "--lease", "2m")
	giveFlags(w, "publisher", "--lease-ttl", "1m")
	giveFlags(w, "trainer", "--lease-ttl", "2m")
	giveFlags(w, "tfs-supervisor", "--memory", "1073741824", "--hang-timeout", "2m")
}

// player is a namespace whose script is the same in every run.
type player struct {
	*opsWorld
	zk            *zk.Conn
	account       account // of what its clients see
	users, movies []int64
	rounds        int
}

const portion = 10 // batches of each partition in a round

// newPlayer starts the namespace, loads its model and lets a ZooKeeper client in.
func newPlayer(g *ground, bzid string) *player {
	cfg := g.config(bzid)
	cfg.Deterministic, cfg.Sync = true, time.Minute
	w := opsStart(g.t, cfg, steady, g.agent)
	w.at = time.Unix(1_700_000_000, 0) // rows carry their records' time, which is part of the input
	p := &player{opsWorld: w, account: account{}}
	for i := range 37 {
		r := opsRating(i)
		p.users, p.movies = append(p.users, r.User), append(p.movies, r.Movie)
	}
	p.load()
	p.zk = zkClient(w)
	return p
}

func zkClient(w *opsWorld) *zk.Conn {
	w.t.Helper()
	return oracle.ZKClient(w.t, fmt.Sprintf("127.0.0.1:%d", w.Config.ZKPort), nil)
}

// round is one more part of the script: ratings and one that is none, a request that is
// none, a cut, predictions, and a client's writes of the tree.
func (p *player) round() {
	p.t.Helper()
	n := p.rounds
	p.rounds++
	ratings := make([]kafka.Record, portion*p.Config.Batch*p.Config.Partitions)
	for i := range ratings {
		ratings[i] = p.record(p.sent + i)
	}
	p.sent += len(ratings)
	ratings[7].Value = []byte("no rating")
	p.write(ratings...)
	p.publish(p.plain(), "monolith."+p.Config.Logs.BZID+".model.movies.request", []byte("no request"))
	p.learnt()
	p.agree()
	p.applied()
	client, err := scenario.Dial(p.entry)
	p.must("dial the entry", err)
	defer client.Close()
	scores, err := predictPairs(client, p.soon(), host.ModelName, "", p.users, p.movies)
	p.must("predict", err)
	p.account.add("scores", "%v", scores)
	p.writes(n)
}

// applied waits until the entry serves the dense variables of every cut since its load:
// each shard publishes them once a round. That it says so, a signal, may be lost.
func (p *player) applied() {
	p.t.Helper()
	p.until("the entry to serve the newest variables", func() (bool, string) {
		families, err := p.Metrics.Gather()
		p.must("read the metrics", err)
		var n float64
		for _, f := range families {
			for _, m := range f.GetMetric() {
				labels := fmt.Sprint(m.GetLabel())
				if f.GetName() == "monolith_modelserver_delta_total" && strings.Contains(labels, `"entry-0"`) && strings.Contains(labels, `"applied"`) {
					n += m.GetCounter().GetValue()
				}
			}
		}
		return n >= float64(p.rounds*p.Config.Shards), fmt.Sprintf("%v deltas after %d rounds", n, p.rounds)
	})
}

// writes are a client's: nodes of its own, one that passes, watches, and in the first
// round a model by its portal node.
func (p *player) writes(n int) {
	p.t.Helper()
	open := zk.WorldACL(zk.PermAll)
	root := fmt.Sprintf("/app-%d", n)
	_, _, news, err := p.zk.ChildrenW("/")
	p.must("watch the root", err)
	_, err = p.zk.Create(root, []byte("of "+p.Config.Logs.BZID), 0, open)
	p.must("create a node", err)
	e := <-news
	p.account.add("watches", "%v of %s", e.Type, e.Path)
	for i := range 3 {
		path, err := p.zk.Create(root+"/s-", fmt.Appendf(nil, "%d", i), zk.FlagSequence, open)
		p.must("create a sequence", err)
		p.account.add("sequences", "%s", path)
	}
	_, err = p.zk.Create(root+"/here", nil, zk.FlagEphemeral, open)
	p.must("create an ephemeral", err)
	_, err = p.zk.Set(root, []byte("more"), 0)
	p.must("set a node", err)
	p.must("delete a node", p.zk.Delete(root+"/s-0000000001", 0))
	if n > 0 {
		return
	}
	_, err = p.zk.Create("/"+p.Config.Logs.BZID+"/portal/extra", fmt.Appendf(nil, `{"model_name": "extra", "model_dir": %q}`, p.Exports()), 0, open)
	p.must("load by a portal node", err)
	_, err = p.job.AwaitServing(p.soon(), "extra", p.Config.Shards, 1)
	p.must("wait for the other model", err)
}

// end adds what stands at the end: parameters by their hashes, the tree, the facts.
func (p *player) end() account {
	p.t.Helper()
	for i := range p.Config.Shards {
		var h struct {
			Hash string `json:"hash"`
			Turn uint64 `json:"turn"`
		}
		p.must("ask for the hash", p.job.Call(p.soon(), fmt.Sprintf("ps.%s.%d.hash", host.JobName, i), struct{}{}, &h))
		if h.Turn != uint64(p.rounds*portion*p.Config.Partitions) || h.Hash == "" {
			p.t.Errorf("shard %d stands at turn %d after %d rounds", i, h.Turn, p.rounds)
		}
		p.account.add("parameters", "shard %d: %s", i, h.Hash)
	}
	p.tree("/")
	for about, lines := range accountOf(p.opsWorld) {
		p.account[about] = lines
	}
	return p.account
}

// tree adds the node and what is below it. What services show changes its version with
// every state that is seen.
func (p *player) tree(path string) {
	p.t.Helper()
	data, stat, err := p.zk.Get(path)
	p.must("read "+path, err)
	line := fmt.Sprintf("%s %q", path, measured.ReplaceAllString(localPort.ReplaceAllString(string(data), "127.0.0.1:…"), ""))
	if strings.HasPrefix(path, "/app") {
		line += fmt.Sprint(stat.Version, stat.Cversion, stat.Aversion, stat.NumChildren, stat.EphemeralOwner != 0)
	}
	p.account.add("tree", "%s", line)
	names, _, err := p.zk.Children(path)
	p.must("list "+path, err)
	slices.Sort(names)
	for _, name := range names {
		p.tree(strings.TrimSuffix(path, "/") + "/" + name)
	}
}

// proved runs verify on the namespace's folder.
func proved(w *opsWorld) {
	w.t.Helper()
	code, out, stderr := opsTool("verify", "--dir", w.Config.Dir, "--bzid", w.Config.Logs.BZID, "--json")
	var got struct {
		OK     bool
		Checks []audit.Check
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		w.t.Fatalf("verify %s: exit %d: %v\n%s%s", w.Config.Logs.BZID, code, err, out, stderr)
	}
	for _, c := range got.Checks {
		if !c.OK {
			w.t.Errorf("verify %s: %s", w.Config.Logs.BZID, c)
		}
	}
	if code != exitOK || len(got.Checks) < 6 {
		w.t.Errorf("verify %s: exit %d after %d checks", w.Config.Logs.BZID, code, len(got.Checks))
	}
}

// TestNamespacesShareNothing plays a script in the namespace two, alone and then beside
// the namespace one, in the same NATS, the same Kafka and with the same ports wanted,
// while everything goes wrong in one: two's events, letters, deltas, predictions, tree
// and parameters are the same, and neither reaches into the other.
func TestNamespacesShareNothing(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "archive")
	playTwice(t, []func(*neighbour){
		func(n *neighbour) {
			n.garbage()
			n.kill("replica-registry", "serving-0-0", "publisher")
		},
		func(n *neighbour) {
			n.fill()
			n.flood()
			n.hang("serving-1-0")
			n.kill("ps-0", "trainer-0", "portal")
		},
		func(n *neighbour) {
			n.trim(archive)
			n.garbage()
			n.nodes()
			n.kill("ps-1", "entry-0", "model-sync", "replica-registry")
		},
	})
}

// TestSoakNamespaces is TestNamespacesShareNothing with as many disturbances as MONOLITH_SOAK
// says, drawn by chance, and kinds that take their time among them.
func TestSoakNamespaces(t *testing.T) {
	rounds, seed := soakRounds(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	kinds := []func(*neighbour){
		(*neighbour).garbage, (*neighbour).declare, (*neighbour).nodes, (*neighbour).fill, (*neighbour).flood, (*neighbour).abort,
		func(n *neighbour) { n.trim(filepath.Join(filepath.Dir(n.Config.Dir), "archive")) },
		func(n *neighbour) { n.hang(fmt.Sprintf("serving-%d-0", rng.IntN(2))) },
		func(n *neighbour) {
			if n.Config.Partitions < 5 {
				n.addPartition()
			}
		},
		func(n *neighbour) { n.kill("replica-registry", "publisher", "model-sync", "portal") },
		func(n *neighbour) { n.kill("trainer-0", fmt.Sprintf("ps-%d", rng.IntN(2))) },
		func(n *neighbour) { n.kill("entry-0", "serving-1-0", "serving-0-0") },
	}
	for ; rounds > 0; rounds -= 10 {
		var disturb []func(*neighbour)
		for range min(rounds, 10) {
			disturb = append(disturb, func(n *neighbour) {
				n.wake()
				kinds[rng.IntN(len(kinds))](n)
			})
		}
		t.Run(fmt.Sprint("with ", rounds, " to come"), func(t *testing.T) { playTwice(t, disturb) })
	}
}

// playTwice plays one round for each disturbance, which happens before it. A run in which
// the machine was too slow for a cut, by whatever else it does, is played once more.
func playTwice(t *testing.T, disturb []func(*neighbour)) {
	dir := filepath.Join(t.TempDir(), "data") // the same for all runs: facts name it
	play := func(name string, f func(*testing.T) account) (a account) {
		for range 3 {
			if !t.Run(name, func(t *testing.T) { a = f(t) }) {
				t.FailNow()
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if !a.late() {
				break
			}
			t.Logf("%s: the machine was too slow", name)
		}
		return a
	}
	alone := play("alone", func(t *testing.T) account {
		p := newPlayer(newGround(t, dir), "two")
		for range disturb {
			p.round()
		}
		defer p.halt()
		defer p.zk.Close()
		return p.end()
	})
	beside := play("beside", func(t *testing.T) account {
		g := newGround(t, dir)
		n := newNeighbour(g, "one")
		p := newPlayer(g, "two")
		portsApart(t, n.opsWorld, p.opsWorld)
		n.declare()
		n.nodes()
		for _, f := range disturb {
			f(n)
			p.round()
		}
		a := p.end()
		n.recover()
		treesApart(t, n.zk, p.zk, n.opsWorld, p.opsWorld, "/two/portal/extra")
		treesApart(t, p.zk, n.zk, p.opsWorld, n.opsWorld, "/one/portal/private")
		sessionsApart(t, n.opsWorld, p.opsWorld)
		sessionsApart(t, p.opsWorld, n.opsWorld)
		servingApart(g, n.opsWorld, "extra")
		servingApart(g, p.opsWorld, "private")
		namesApart(g, p.opsWorld)
		filesApart(n.opsWorld, p.Config.Dir)
		wordsApart(n.opsWorld, p.Config)
		wordsApart(p.opsWorld, n.Config)
		proved(n.opsWorld)
		proved(p.opsWorld)
		n.halt()
		p.zk.Close()
		p.halt()
		return a
	})
	expectAccount(t, alone, beside)
}
