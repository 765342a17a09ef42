package replicaregistry

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

// monolith builds the program, as users run it.
func monolith(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "monolith")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/monolith-go/monolith/cmd/monolith")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build monolith: %v\n%s", err, out)
	}
	return bin
}

// spawn runs a program until it is killed with SIGKILL, or the test ends.
func spawn(t *testing.T, bin string, args ...string) (kill func()) {
	t.Helper()
	var out bytes.Buffer // read when the process is gone
	cmd := exec.Command(bin, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), "MONOLITH_NATS=", "MONOLITH_KAFKA=")
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return func() {}
	}
	gone := make(chan struct{})
	go func() { _ = cmd.Wait(); close(gone) }() // its end says nothing: it is killed
	kill = sync.OnceFunc(func() {
		select {
		case <-gone:
			t.Errorf("%v ended before it was killed:\n%s", args, out.Bytes()[max(0, out.Len()-3000):])
		default:
			_ = cmd.Process.Kill()
			<-gone
		}
	})
	t.Cleanup(kill)
	return kill
}

// TestKilledProcesses kills processes with SIGKILL, without a word to anybody, while
// clients write: two registries in turns, and in a soak all of Monolith in one process,
// with its NATS.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 99))
	soak := os.Getenv("MONOLITH_SOAK") != ""
	bin := monolith(t)
	for _, tc := range []struct {
		name  string
		kills int // in each round
		world func(t *testing.T) *cluster
	}{
		{"two registries", 1, func(t *testing.T) *cluster {
			r := emptyCluster(t)
			r.spawn = func(i int) func() {
				return spawn(t, bin, "replica-registry", "--bzid", controltest.BZID, "--nats", r.uplink(i), "--zk-listen", r.listen[i],
					"--snapshot-dir", filepath.Join(r.dir, strconv.Itoa(i)), "--zk-min-session-timeout", "500ms")
			}
			for i := range 2 {
				r.addrs = append(r.addrs, r.port())
				r.start(i)
			}
			return r
		}},
		{"everything", 3, func(t *testing.T) *cluster {
			if !soak {
				t.Skip("a soak: set MONOLITH_SOAK to the number of rounds")
			}
			r := emptyCluster(t) // its own log is not used
			nats, err := freeport.Find()
			if err != nil {
				t.Fatal(err)
			}
			r.addrs = []string{r.port()}
			_, zk, _ := net.SplitHostPort(r.listen[0])
			r.spawn = func(int) func() {
				return spawn(t, bin, "up", "--dir", filepath.Join(r.dir, "up"), "--shards", "1", "--replicas", "1", "--trainers", "1",
					"--nats-port", strconv.Itoa(nats), "--zk-port", zk, "--kafka-port", "0", "--grpc-port", "0", "--rest-port", "0")
			}
			r.start(0)
			return r
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := tc.world(t)
			rounds := 1
			if soak {
				rounds = int(length(t, 1))
			}
			for n := range rounds {
				r.killing(fmt.Sprintf("r%d", n), seed+uint64(n), rng, tc.kills)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// killing is one history with so many kills in it; behind each one somebody serves again.
func (r *cluster) killing(name string, seed uint64, rng *rand.Rand, kills int) {
	r.t.Helper()
	soon := func() time.Time { return time.Now().Add(3 * controltest.Patience) }
	writer := r.serves(soon())
	began := time.Now()
	var keys []string
	for i := range 8 {
		keys = append(keys, fmt.Sprintf("/%s-k%d", name, i))
	}
	done := make(chan struct{})
	var ops []porcupine.Operation
	var playing sync.WaitGroup
	playing.Go(func() { ops = r.playUntil(12, keys, seed, began, done) })
	for range kills {
		<-time.After(time.Duration(500+rng.IntN(1000)) * time.Millisecond)
		i := writer
		if rng.IntN(4) == 0 {
			i = rng.IntN(len(r.addrs))
		}
		r.stop(i)
		r.start(i)
		writer = r.serves(soon())
	}
	<-time.After(500 * time.Millisecond)
	r.enough(soon())
	close(done)
	playing.Wait()
	r.settle(ops, began)
	ops = append(ops, r.last(keys, len(ops))...)
	unknown := 0
	for _, o := range ops {
		if o.Output.(reply).unknown {
			unknown++
		}
	}
	if len(ops)-unknown < enough {
		r.t.Errorf("only %d of %d outcomes are known", len(ops)-unknown, len(ops))
	}
	r.t.Logf("%s: %d operations, %d with an unknown outcome, %d kills", name, len(ops), unknown, kills)
	linear(r.t, ops, seed)
}
