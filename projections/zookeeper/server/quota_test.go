package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// TestOracleQuotaStatistics has Apache ZooKeeper and ours keep the statistics of quotas,
// one within another, over random changes.
func TestOracleQuotaStatistics(t *testing.T) {
	real := oracle.ZooKeeper(t, "-Dzookeeper.forceSync=no")
	h, _ := writable(t, Config{})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	clients := []*zk.Conn{h.stock(nil), oracle.ZKClient(t, real.Addr, nil)}
	both := func(what string, do func(c *zk.Conn) (string, error)) {
		t.Helper()
		ours, err1 := do(clients[0])
		theirs, err2 := do(clients[1])
		if ours != theirs || !errors.Is(err1, err2) && !errors.Is(err2, err1) {
			t.Fatalf("%s: %q %v, ZooKeeper's %q %v", what, ours, err1, theirs, err2)
		}
	}
	create := func(path, data string) {
		both("create "+path, func(c *zk.Conn) (string, error) { return c.Create(path, []byte(data), 0, zk.WorldACL(zk.PermAll)) })
	}
	quotas := []string{"/q", "/q/1", "/q/1/2"}
	for i := range 250 {
		if i%20 == 0 && i/20 < len(quotas) { // over nodes that are there, or not yet
			path := "/zookeeper/quota" + quotas[i/20]
			create(path, "")
			create(path+"/zookeeper_limits", "count=1000,bytes=-1")
			create(path+"/zookeeper_stats", "count=0,bytes=0")
		}
		path := "/q"
		for range rng.IntN(4) {
			path += fmt.Sprintf("/%d", rng.IntN(3))
		}
		data := fmt.Sprintf("%08d", rng.IntN(1e8))[:rng.IntN(9)]
		switch rng.IntN(8) {
		case 0, 1, 2:
			create(path, data)
		case 3, 4:
			both("set "+path, func(c *zk.Conn) (string, error) { _, err := c.Set(path, []byte(data), -1); return "", err })
		case 5, 6:
			both("delete "+path, func(c *zk.Conn) (string, error) { return "", c.Delete(path, -1) })
		default:
			both("multi "+path, func(c *zk.Conn) (string, error) {
				_, err := c.Multi(&zk.SetDataRequest{Path: "/q", Data: []byte(data), Version: -1}, &zk.CreateRequest{Path: path, Data: []byte(data), Acl: zk.WorldACL(zk.PermAll)})
				return "", err
			})
		}
		for _, q := range quotas {
			stats := "/zookeeper/quota" + q + "/zookeeper_stats"
			both(fmt.Sprintf("%s after operation %d on %s", stats, i, path), func(c *zk.Conn) (string, error) {
				data, st, err := c.Get(stats)
				if err != nil {
					return "", err
				}
				return fmt.Sprintf("%s version %d length %d", data, st.Version, st.DataLength), nil
			})
		}
	}
}
