package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/loadtest/scenario"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// portsApart checks that the second stack, which wanted the same ports, has others and
// says so, and that each port answers for its own namespace.
func portsApart(t *testing.T, first, second *opsWorld) {
	t.Helper()
	for _, x := range []struct {
		what        string
		wanted, has int
	}{{"ZooKeeper", first.Config.ZKPort, second.Config.ZKPort}, {"gRPC", first.Config.GRPCPort, second.Config.GRPCPort}, {"REST", first.Config.RESTPort, second.Config.RESTPort}} {
		note := fmt.Sprintf("port %d is taken, so %s got %d", x.wanted, x.what, x.has)
		if x.wanted == x.has || !slices.Contains(second.Notes, note) {
			t.Errorf("%s: %d of both; notes of the second: %q", x.what, x.has, second.Notes)
		}
	}
	for _, w := range []*opsWorld{first, second} {
		if w.entry != fmt.Sprintf("127.0.0.1:%d", w.Config.GRPCPort) {
			t.Errorf("the entry of %s is at %s, its port is %d", w.Config.Logs.BZID, w.entry, w.Config.GRPCPort)
		}
	}
}

// treesApart checks that a client of either namespace neither sees nor changes what the
// other's keeps, and that nothing written there reaches its watches. Both have the node
// /app-1 and no other of the same name; loaded is one of theirs portal's.
func treesApart(t *testing.T, mine, others *zk.Conn, mineWorld, othersWorld *opsWorld, loaded string) {
	t.Helper()
	bzid, open := othersWorld.Config.Logs.BZID, zk.WorldACL(zk.PermAll)
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	_, _, root, err := mine.ChildrenW("/")
	must("watch the root", err)
	_, _, data, err := mine.GetW("/app-1")
	must("watch a node", err)
	only := "/only-" + bzid
	_, _, made, err := mine.ExistsW(only)
	must("watch what is not there", err)

	_, err = others.Create(only, nil, zk.FlagEphemeral, open)
	must("create there", err)
	_, stat, err := others.Get("/app-1")
	must("read there", err)
	changed := "changed in " + bzid
	_, err = others.Set("/app-1", []byte(changed), stat.Version)
	must("set there", err)
	_, stat, err = others.Get("/")
	must("read there", err)
	past := fmt.Sprintf("/@%d", stat.Pzxid)

	// The answer to a write comes behind every change before it that a watch waits for.
	mark := "/mark-of-" + mineWorld.Config.Logs.BZID
	_, err = mine.Create(mark+"-"+bzid, nil, 0, open)
	must("create", err)
	select {
	case e := <-data:
		t.Errorf("the watch of /app-1 heard %v of %s", e.Type, bzid)
	case e := <-made:
		t.Errorf("the watch of %s heard %v of %s", only, e.Type, bzid)
	default:
	}
	select {
	case <-root: // of the mark, which is in the tree by now
	default:
		t.Error("the watch of the root heard nothing of its own tree")
	}
	if got, _, err := mine.Get("/app-1"); err != nil || string(got) == changed {
		t.Errorf("/app-1 is %q, %v: that is the other's", got, err)
	}
	for _, path := range []string{only, loaded, past + only, past + loaded} {
		if there, _, err := mine.Exists(path); there || err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("a client of %s sees %s of %s: %v", mineWorld.Config.Logs.BZID, path, bzid, err)
		}
		if err := mine.Delete(path, -1); err == nil {
			t.Errorf("a client of %s deletes %s", mineWorld.Config.Logs.BZID, path)
		}
	}
	if there, _, err := others.Exists(mark + "-" + bzid); there || err != nil {
		t.Errorf("%s has a node of %s: %v", bzid, mineWorld.Config.Logs.BZID, err)
	}
	if there, _, err := others.Exists(loaded); !there || err != nil {
		t.Errorf("%s has lost %s: %v", bzid, loaded, err)
	}
	if dump := oracle.FourLetters(t, fmt.Sprintf("127.0.0.1:%d", mineWorld.Config.ZKPort), "dump"); strings.Contains(dump, only) || !strings.Contains(dump, "SessionTracker") {
		t.Errorf("the sessions at %s:\n%s", mineWorld.Config.Logs.BZID, dump)
	}
}

// sessionsApart checks that a session of one tree is none of the other's.
func sessionsApart(t *testing.T, home, elsewhere *opsWorld) {
	t.Helper()
	connect := func(w *opsWorld, q wire.ConnectRequest) (r wire.ConnectResponse) {
		t.Helper()
		nc, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.Config.ZKPort))
		w.must("dial", err)
		defer nc.Close()
		deadline, _ := w.soon().Deadline()
		w.must("bound the wait", nc.SetDeadline(deadline))
		_, err = nc.Write(wire.Frame(q.Encode))
		w.must("ask for a session", err)
		raw, err := wire.ReadFrame(nc, nil, 1<<20)
		w.must("wait for a session", err)
		r.Decode(wire.NewReader(raw))
		return r
	}
	s := connect(home, wire.ConnectRequest{TimeoutMS: 30_000, Password: make([]byte, 16)})
	again := wire.ConnectRequest{TimeoutMS: 30_000, SessionID: s.SessionID, Password: slices.Clone(s.Password)}
	if r := connect(elsewhere, again); s.SessionID == 0 || r.SessionID != 0 {
		t.Errorf("session %x of %s is %x at %s", s.SessionID, home.Config.Logs.BZID, r.SessionID, elsewhere.Config.Logs.BZID)
	}
	if r := connect(home, again); r.SessionID != s.SessionID {
		t.Errorf("session %x of %s is %x when it comes back", s.SessionID, home.Config.Logs.BZID, r.SessionID)
	}
}

// servingApart checks that no port of w knows the model of the other namespace.
func servingApart(g *ground, w *opsWorld, model string) {
	w.t.Helper()
	client, err := scenario.Dial(w.entry)
	w.must("dial the entry", err)
	defer client.Close()
	if _, err := predictPairs(client, w.soon(), model, "", []int64{1}, []int64{1}); status.Code(err) != codes.NotFound {
		w.t.Errorf("the entry of %s says of %s: %v", w.Config.Logs.BZID, model, err)
	}
	if code, body, err := opsGet(w.soon(), fmt.Sprintf("http://127.0.0.1:%d/v1/models/%s", w.Config.RESTPort, model)); err != nil || code != http.StatusNotFound {
		w.t.Errorf("REST of %s says of %s: %d %s %v", w.Config.Logs.BZID, model, code, body, err)
	}
	code, out, stderr := opsTool("svr-client", "--cmd_type=hb", fmt.Sprintf("--port=%d", g.agents[w.Config.Logs.BZID]))
	if code != exitOK || strings.Contains(out, model) || !strings.Contains(out, host.ModelName) {
		w.t.Errorf("the agent service of %s: exit %d %s%s", w.Config.Logs.BZID, code, out, stderr)
	}
}

// wordsApart checks that nothing of one namespace is named in what the other's logs hold,
// neither its folder nor its subjects.
func wordsApart(w *opsWorld, other host.Config) {
	w.t.Helper()
	for _, args := range [][]string{{"events", "--json"}, {"dlq", "ls", "--json"}} {
		code, out, stderr := w.tool(args...)
		if code != exitOK {
			w.t.Fatalf("%v: exit %d %s", args, code, stderr)
		}
		for _, word := range []string{other.Dir + "/", "monolith." + other.Logs.BZID + ".", other.Topics.Ratings} {
			if at := strings.Index(out, word); at >= 0 {
				w.t.Errorf("%v of %s name %s: …%s…", args, w.Config.Logs.BZID, word, out[max(0, at-300):min(len(out), at+100)])
			}
		}
	}
}

// namesApart checks that whatever is kept by name in NATS and Kafka is of one namespace:
// subjects of streams, keys of buckets, services, consumers, topics, groups, which have no members.
func namesApart(g *ground, w *opsWorld) {
	w.t.Helper()
	own := regexp.MustCompile(`^((monolith|msync|mdlq|mdlqnote|mpulse)\.(one|two)\.|\$KV\.MONOLITH_LEASES\.(one|two)\.|\$KV\.MONOLITH_TRIMMED\.([0-9a-f]{32}|cut|archive)$)`)
	nc := w.plain()
	js, err := jetstream.New(nc)
	w.must("open JetStream", err)
	streams := js.ListStreams(w.soon())
	var names []string
	for info := range streams.Info() {
		names = append(names, info.Config.Name)
		s, err := js.Stream(w.soon(), info.Config.Name)
		w.must("open a stream", err)
		all, err := s.Info(w.soon(), jetstream.WithSubjectFilter(">"))
		w.must("list its subjects", err)
		for subject := range all.State.Subjects {
			if !own.MatchString(subject) {
				w.t.Errorf("%s holds %s, which is of no namespace", info.Config.Name, subject)
			}
		}
		consumers := s.ListConsumers(w.soon())
		for c := range consumers.Info() {
			if c.Config.Durable != "" {
				w.t.Errorf("%s has the durable consumer %s: who uses it shares its place", info.Config.Name, c.Config.Durable)
			}
		}
		w.must("list its consumers", consumers.Err())
	}
	w.must("list the streams", streams.Err())
	known := []string{"KV_MONOLITH_LEASES", "KV_MONOLITH_TRIMMED", "MONOLITH", "MONOLITH_DLQ", "MONOLITH_DLQ_NOTES", "MONOLITH_SYNC"}
	for _, name := range names {
		if !slices.Contains(known, name) {
			w.t.Errorf("stream %s: say here whose it is", name)
		}
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(w.Brokers()...))
	w.must("dial Kafka", err)
	defer c.Close()
	meta, err := kmsg.NewPtrMetadataRequest().RequestWith(w.soon(), c)
	w.must("list the topics", err)
	var topics []string
	for _, topic := range meta.Topics {
		topics = append(topics, *topic.Topic)
	}
	slices.Sort(topics)
	if want := []string{"one.predictions", "one.ratings", "two.predictions", "two.ratings"}; !slices.Equal(topics, want) {
		w.t.Errorf("topics %v, want %v", topics, want)
	}
	groups, err := kmsg.NewPtrListGroupsRequest().RequestWith(w.soon(), c)
	w.must("list the groups", err)
	for _, g := range groups.Groups {
		if g.Group != "one.monolith-movies" && g.Group != "two.monolith-movies" {
			w.t.Errorf("the group %s is of no namespace", g.Group)
		}
		if g.GroupState != "Empty" {
			w.t.Errorf("the group %s is %s: who joins one shares its offsets", g.Group, g.GroupState)
		}
	}
	servicesApart(w, nc)
}

// servicesApart checks that every command answers on its namespace's subjects.
func servicesApart(w *opsWorld, nc *nats.Conn) {
	w.t.Helper()
	inbox := nats.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	w.must("listen", err)
	w.must("ask for services", nc.PublishRequest("$SRV.INFO", inbox, nil))
	heard := map[string]bool{}
	w.until("the services of both", func() (bool, string) {
		m, err := sub.NextMsgWithContext(w.soon())
		w.must("hear of a service", err)
		var info struct {
			Endpoints []struct{ Subject string }
		}
		w.must("read it", json.Unmarshal(m.Data, &info))
		for _, e := range info.Endpoints {
			t := strings.SplitN(e.Subject, ".", 4)
			if len(t) < 4 || t[1] != "one" && t[1] != "two" || t[2] != "cmd" {
				w.t.Fatalf("a service answers on %s", e.Subject)
			}
			heard[t[1]+" "+t[3]] = true
		}
		return heard["one portal.load"] && heard["two portal.load"] && heard["one ps.movies.0.hash"] && heard["two ps.movies.0.hash"], fmt.Sprint(heard)
	})
}

// filesApart checks that no process of the namespace has a file of the other's open, and
// that the two folders share no file.
func filesApart(w *opsWorld, other string) {
	w.t.Helper()
	for _, p := range descendants(os.Getpid()) {
		open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.pid))
		w.must("list open files", err)
		for _, fd := range open {
			if path, err := os.Readlink(fd); err == nil && strings.HasPrefix(path, other+"/") {
				w.t.Errorf("process %d of %s has %s open", p.pid, w.Config.Logs.BZID, path)
			}
		}
	}
	var mine []os.FileInfo
	files := func(root string, f func(path string, info os.FileInfo)) {
		w.must("walk "+root, filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil // a temporary one
			}
			if err == nil && !info.IsDir() {
				f(path, info)
			}
			return err
		}))
	}
	files(w.Config.Dir, func(_ string, info os.FileInfo) { mine = append(mine, info) })
	files(other, func(path string, info os.FileInfo) {
		if info.Mode()&os.ModeSymlink != 0 || slices.ContainsFunc(mine, func(m os.FileInfo) bool { return os.SameFile(m, info) }) {
			w.t.Errorf("%s is not %s's alone", path, other)
		}
	})
}
