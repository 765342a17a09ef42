package server

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/events/replica"
)

const (
	loadingBytes   = `{"address": "127.0.0.1:4003", "address_ipv6": null, "stat": 20, "model_name": "movie", "server_type": "ps", "task": 0, "replica": 0, "archon_address": null, "archon_address_ipv6": null}`
	availableBytes = `{"address": "127.0.0.1:4003", "address_ipv6": null, "stat": 30, "model_name": "movie", "server_type": "ps", "task": 0, "replica": 0, "archon_address": null, "archon_address_ipv6": null}`
)

func event(t *testing.T, ch <-chan zk.Event, want zk.EventType, path string) {
	t.Helper()
	select {
	case e := <-ch:
		if e.Type != want || e.Path != path || e.Err != nil {
			t.Fatalf("event %+v, want %v on %s", e, want, path)
		}
	case <-time.After(within):
		t.Fatalf("no %v on %s", want, path)
	}
}

func TestStockClientReads(t *testing.T) {
	h := open(t, Config{})
	seq := int64(h.register())
	c := h.stock(net.DialTimeout)
	data, st, err := c.Get(replicaPath)
	if err != nil || string(data) != loadingBytes {
		t.Fatalf("get: %s, %v", data, err)
	}
	if st.Czxid != seq || st.Mzxid != seq || st.Version != 0 || st.EphemeralOwner == 0 || int(st.DataLength) != len(data) || time.Since(time.UnixMilli(st.Ctime)) > time.Minute {
		t.Errorf("stat: %+v", st)
	}
	h.state(replica.State_AVAILABLE)
	if data, st, err = c.Get(replicaPath); err != nil || string(data) != availableBytes || st.Version != 1 || st.Mzxid != seq+1 || st.Czxid != seq {
		t.Errorf("after the change: %s, %+v, %v", data, st, err)
	}
	if names, st, err := c.Children("/"); err != nil || !slices.Equal(names, []string{"demo", "zookeeper"}) || st.NumChildren != 2 || st.Cversion != 0 {
		t.Errorf("children of /: %v, %+v, %v", names, st, err)
	}
	if names, _, err := c.Children("/zookeeper"); err != nil || !slices.Equal(names, []string{"config", "quota"}) {
		t.Errorf("children of /zookeeper: %v, %v", names, err)
	}
	if data, st, err := c.Get("/demo"); err != nil || len(data) != 0 || st.EphemeralOwner != 0 {
		t.Errorf("a parent: %q, %+v, %v", data, st, err)
	}
	if ok, _, err := c.Exists("/demo/service/none"); ok || err != nil {
		t.Errorf("exists: %v, %v", ok, err)
	}
	if _, _, err := c.Get("/demo/service/none"); err != zk.ErrNoNode {
		t.Errorf("get of nothing: %v", err)
	}
	if _, _, err := c.Children("/none"); err != zk.ErrNoNode {
		t.Errorf("children of nothing: %v", err)
	}
	if acl, _, err := c.GetACL(replicaPath); err != nil || !slices.Equal(acl, zk.WorldACL(zk.PermAll)) {
		t.Errorf("acl: %v, %v", acl, err)
	}
	if path, err := c.Sync(replicaPath); err != nil || path != replicaPath {
		t.Errorf("sync: %s, %v", path, err)
	}
	if err := c.AddAuth("digest", []byte("user:password")); err != nil {
		t.Errorf("auth: %v", err)
	}
}

func TestStockClientWritesAreRefused(t *testing.T) {
	h := open(t, Config{})
	c := h.stock(net.DialTimeout)
	_, err := c.Create("/a", nil, 0, zk.WorldACL(zk.PermAll))
	_, err2 := c.Set("/zookeeper", nil, -1)
	_, err3 := c.Multi(&zk.DeleteRequest{Path: "/zookeeper"})
	for _, err := range []error{err, err2, err3, c.Delete("/zookeeper", -1)} {
		if err == nil || !strings.Contains(err.Error(), "-119") {
			t.Errorf("a write gives %v, want code -119 (not a read-only call)", err)
		}
	}
	if ok, _, err := c.Exists("/zookeeper"); !ok || err != nil {
		t.Errorf("afterwards: %v, %v", ok, err)
	}
}

func TestStockClientWatches(t *testing.T) {
	h := open(t, Config{})
	c := h.stock(net.DialTimeout)
	ok, _, created, err := c.ExistsW(replicaPath)
	if ok || err != nil {
		t.Fatalf("exists: %v, %v", ok, err)
	}
	_, _, top, err := c.ChildrenW("/")
	if err != nil {
		t.Fatal(err)
	}
	h.register()
	event(t, created, zk.EventNodeCreated, replicaPath)
	event(t, top, zk.EventNodeChildrenChanged, "/")

	data, _, changed, err := c.GetW(replicaPath)
	if err != nil || string(data) != loadingBytes {
		t.Fatalf("get: %s, %v", data, err)
	}
	h.state(replica.State_AVAILABLE)
	event(t, changed, zk.EventNodeDataChanged, replicaPath)
	if data, _, err := c.Get(replicaPath); err != nil || string(data) != availableBytes {
		t.Errorf("after the event: %s, %v", data, err)
	}

	_, _, children, err := c.ChildrenW("/demo/service/movie/ps:0")
	if err != nil {
		t.Fatal(err)
	}
	_, _, data2, err := c.GetW(replicaPath)
	if err != nil {
		t.Fatal(err)
	}
	h.lost()
	event(t, children, zk.EventNodeChildrenChanged, "/demo/service/movie/ps:0")
	event(t, data2, zk.EventNodeDeleted, replicaPath)
	if n := h.watches.Count(); n != 0 {
		t.Errorf("%d watches left, they are one-shot", n)
	}
}

// gate holds a client's dials back until it is opened.
type gate struct {
	mu   sync.Mutex
	open chan struct{}
}

func (g *gate) set(ch chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = ch
}

func (g *gate) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	g.mu.Lock()
	ch := g.open
	g.mu.Unlock()
	<-ch
	return net.DialTimeout(network, addr, timeout)
}

func TestStockClientReconnects(t *testing.T) {
	h := open(t, Config{})
	h.register()
	opened := make(chan struct{})
	close(opened)
	g := &gate{open: opened}
	c := h.stock(g.dial)
	id := c.SessionID()
	_, _, changed, err := c.GetW(replicaPath)
	if err != nil {
		t.Fatal(err)
	}
	_, _, born, err := c.ExistsW("/demo/portal/movie")
	if err != nil {
		t.Fatal(err)
	}
	_, _, quiet, err := c.GetW("/demo/service")
	if err != nil {
		t.Fatal(err)
	}
	_, _, kids, err := c.ChildrenW("/demo")
	if err != nil {
		t.Fatal(err)
	}

	shut := make(chan struct{})
	g.set(shut)
	for _, conn := range h.connections() {
		conn.out.Kill(nil)
	}
	h.state(replica.State_AVAILABLE) // while nobody is connected
	h.load("movie")
	close(shut)

	event(t, changed, zk.EventNodeDataChanged, replicaPath)
	event(t, born, zk.EventNodeCreated, "/demo/portal/movie")
	event(t, kids, zk.EventNodeChildrenChanged, "/demo")
	if c.SessionID() != id {
		t.Errorf("session 0x%x became 0x%x", id, c.SessionID())
	}
	if _, _, err := c.Get(replicaPath); err != nil {
		t.Error(err)
	}
	select {
	case e := <-quiet:
		t.Errorf("nothing happened to /demo/service: %+v", e)
	default:
	}
}

func TestTimeTravel(t *testing.T) {
	h := open(t, Config{})
	first := h.register()
	between := time.Now()
	for time.Since(between) < 2*time.Millisecond { // times in the log are no finer
	}
	h.state(replica.State_AVAILABLE)
	h.lost()
	c := h.stock(net.DialTimeout)
	if _, _, err := c.Get(replicaPath); err != zk.ErrNoNode {
		t.Fatalf("now: %v", err)
	}
	for path, want := range map[string]string{
		"/@1" + replicaPath: loadingBytes,
		"/@2" + replicaPath: availableBytes,
		"/@" + between.UTC().Format(time.RFC3339Nano) + replicaPath: loadingBytes,
	} {
		data, st, err := c.Get(path)
		if err != nil || string(data) != want || st.Czxid != int64(first) {
			t.Errorf("%s: %s, %+v, %v", path, data, st, err)
		}
	}
	for _, path := range []string{
		"/@0" + replicaPath, "/@3" + replicaPath, "/@4", "/@", "/@x/demo", "/@01" + replicaPath, "/@-1", "/@99999999999999999999", "/@2001-01-01T00:00:00Z/demo", "/@1/",
	} {
		if ok, _, err := c.Exists(strings.TrimSuffix(path, "/")); path != "/@1/" && (ok || err != nil) {
			t.Errorf("%s: %v, %v", path, ok, err)
		}
	}
	if names, _, err := c.Children("/@1"); err != nil || !slices.Equal(names, []string{"demo", "zookeeper"}) {
		t.Errorf("/@1: %v, %v", names, err)
	}
	if names, _, err := c.Children("/@0"); err != nil || !slices.Equal(names, []string{"zookeeper"}) {
		t.Errorf("/@0: %v, %v", names, err)
	}
	if acl, _, err := c.GetACL("/@1/demo"); err != nil || !slices.Equal(acl, zk.WorldACL(zk.PermRead)) {
		t.Errorf("acl: %v, %v", acl, err)
	}
	if _, _, _, err := c.GetW("/@1/demo"); err != nil || h.watches.Count() != 0 {
		t.Errorf("a watch on the past: %v, %d set", err, h.watches.Count())
	}
	for i := range uint64(historySize + 2) {
		h.load(string(rune('a' + i)))
		if _, _, err := c.Get("/@" + string(rune('4'+i)) + "/demo/portal/" + string(rune('a'+i))); err != nil {
			t.Errorf("tree %d: %v", i, err)
		}
	}
	if n := len(h.history.trees); n != historySize {
		t.Errorf("%d past trees are kept", n)
	}
}

func TestFourLetterWords(t *testing.T) {
	h := open(t, Config{})
	h.register()
	h.stock(net.DialTimeout)
	if ok := zk.FLWRuok([]string{h.Addr()}, within); !ok[0] {
		t.Error("ruok")
	}
	srvr, ok := zk.FLWSrvr([]string{h.Addr()}, within)
	if !ok || srvr[0].NodeCount != 9 || srvr[0].Counter != 1 || srvr[0].Mode != zk.ModeStandalone || srvr[0].Connections < 1 || srvr[0].Received < 1 {
		t.Errorf("srvr: %+v", srvr[0])
	}
	cons, _ := zk.FLWCons([]string{h.Addr()}, within)
	if len(cons[0].Clients) != 1 || cons[0].Clients[0].Timeout != 40_000 || cons[0].Clients[0].SessionID>>56 != sessionPrefix {
		t.Errorf("cons: %+v", *cons[0].Clients[0])
	}
	for word, want := range map[string]string{
		"stat": "Clients:\n /127.0.0.1:", "mntr": "zk_znode_count\t9\n", "envi": "zookeeper.version=3.8", "dump": "not executed",
	} {
		w := h.dial()
		w.write([]byte(word))
		buf := make([]byte, 4096)
		got := ""
		for {
			n, err := w.Net().Read(buf)
			got += string(buf[:n])
			if err != nil {
				break
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q in it", word, got, want)
		}
	}
}
