package server

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/projections/zookeeper/zktest"
)

// apache starts an Apache ZooKeeper that does all that ours does, as fast as it can.
func apache(t testing.TB) string {
	t.Helper()
	return oracle.ZooKeeper(t, "-Dzookeeper.extendedTypesEnabled=true", "-Dzookeeper.forceSync=no", "-Dznode.container.checkIntervalMs=100000000").Addr
}

// TestOracleDifferential has Apache ZooKeeper and this server do the same random
// operations; MONOLITH_ZKDIFF_OPS says how many, MONOLITH_ZKDIFF_SEED which.
func TestOracleDifferential(t *testing.T) {
	ops, seeds := 3000, []uint64{1, uint64(time.Now().UnixNano())}
	if v := os.Getenv("MONOLITH_ZKDIFF_OPS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("MONOLITH_ZKDIFF_OPS=%s is no number of operations", v)
		}
		ops, seeds = n, seeds[1:]
	}
	if v := os.Getenv("MONOLITH_ZKDIFF_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("MONOLITH_ZKDIFF_SEED=%s is no seed", v)
		}
		seeds = []uint64{n}
	}
	for _, seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			real := apache(t)
			h, _ := writable(t, Config{MinSessionTimeout: time.Second, MaxSessionTimeout: 10 * time.Second})
			zktest.Run(t, zktest.Config{Ours: h.Addr(), Real: real, Seed: seed, Ops: ops})
		})
	}
}
