package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
)

// replicatedStreams are those whose leaders TestSoakReplicatedLog takes away.
var replicatedStreams = []string{"MONOLITH", "MONOLITH_SYNC", "KV_MONOLITH_LEASES"}

// TestSoakReplicatedLog plays the demo on three NATS servers, of which leaders step down and
// one at a time is killed, MONOLITH_SOAK times or, without it, once each. No rating is lost or
// learnt twice, and verify finds all figures in the logs again.
func TestSoakReplicatedLog(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("MONOLITH_SOAK_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("seed %d (MONOLITH_SOAK_SEED repeats it)", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	left, err := strconv.Atoi(os.Getenv("MONOLITH_SOAK"))
	if err != nil || left < 1 {
		playReplicated(t, 1500, "--processes=false", func(c *natstest.Cluster, _ *child) {
			c.StepDown(t, "MONOLITH")
			killed := c.Leader(t, "MONOLITH")
			c.Kill(killed)
			c.Leader(t, "MONOLITH")
			c.Start(t, killed)
		})
		return
	}
	for round := 0; left > 0; round++ {
		t.Run(fmt.Sprint("round", round), func(t *testing.T) {
			mode := []string{"--processes=false", "--processes=true"}[round%2]
			playReplicated(t, 9000, mode, func(c *natstest.Cluster, demo *child) {
				for done := 0; left > 0 && done < 4; done++ {
					left--
					if !pass(demo, time.Duration(rng.IntN(3000))*time.Millisecond) {
						t.Errorf("the demo ended after %d leader changes: give it more ratings", done)
						return
					}
					stream := replicatedStreams[rng.IntN(len(replicatedStreams))]
					if rng.IntN(2) == 0 {
						t.Logf("the leader of %s steps down", stream)
						c.StepDown(t, stream)
						continue
					}
					victim := c.Leader(t, stream)
					t.Logf("server %d, which leads %s, is killed", victim, stream)
					c.Kill(victim)
					pass(demo, time.Duration(rng.IntN(3000))*time.Millisecond)
					c.Start(t, victim)
					c.Current(t)
				}
			})
		})
	}
}

// pass lets so much time go by, and is false when the process has ended by then.
func pass(c *child, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.done:
		return false
	}
}

// playReplicated plays the demo on a cluster that is disturbed once ratings stream.
func playReplicated(t *testing.T, ratings int, mode string, disturb func(*natstest.Cluster, *child)) {
	t.Helper()
	c := natstest.NewCluster(t, 3)
	b, err := jetstream.Connect(t.Context(), jetstream.Config{URL: c.URL(), Replicas: 3}) // what comes later has as many
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	p := newPlayed(t, ratingsCSV(t, ratings), "--rate", "300", "--checkpoint-interval", "2s", "--nats", c.URL(), mode)
	p.extra = []string{"--nats", c.URL()}
	demo := startChild(t, p.args...)
	if until(t, demo, "the stream", p.streaming) {
		disturb(c, demo)
	}
	p.finish(t, demo, int64(ratings), 0)
}
