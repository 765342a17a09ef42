package replicaregistry_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(mirrorProcess); addr != "" {
		fmt.Fprintln(os.Stderr, mirrorUntilKilled(addr))
		os.Exit(1)
	}
	_ = flag.Set("test.parallel", "4") // they wait for servers and clocks, not for processors; the command line still decides
	// nats-server 2.15 leaves a stream's goroutines behind that a killed client asked for
	// while the server shut down.
	const inServer = "github.com/nats-io/nats-server/v2/server"
	leaks.Main(m, goleak.IgnoreAnyFunction(inServer+"/ats.Register.func1"),
		goleak.IgnoreAnyFunction(inServer+".(*fileStore).flushStreamStateLoop"), goleak.IgnoreAnyFunction(inServer+".(*msgBlock).flushLoop"))
}

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }

// longLease outlasts a busy machine, which may take long from one heartbeat to the next look
// at what came of it.
const longLease = 10 * time.Minute

func start(t *testing.T, b bus.Bus) (stop func()) {
	t.Helper()
	return startLeasing(t, b, 0)
}

func startLeasing(t *testing.T, b bus.Bus, lease time.Duration) (stop func()) {
	t.Helper()
	s, err := replicaregistry.New(replicaregistry.Config{Lease: lease}, controltest.Env(b))
	if err != nil {
		t.Fatal(err)
	}
	return controltest.Start(t, s)
}

func ps(stat replica.State) *replica.Heartbeat {
	return serving("s0", "", 1000, on("s0", "m", "ps", 0, 0, stat))
}

// types is the log as a line of event types.
func types(t *testing.T, b bus.Bus) string {
	t.Helper()
	var out []string
	for _, r := range controltest.All(t, b) {
		out = append(out, r.Header.Type)
	}
	return strings.Join(out, " ")
}

func TestHeartbeats(t *testing.T) {
	b := mem.New()
	startLeasing(t, b, longLease)
	for range 3 {
		controltest.Beat(t, b, ps(replica.State_LOADING))
	}
	controltest.Beat(t, b, ps(replica.State_AVAILABLE))
	if got, want := types(t, b), "reported resourceReported registered stateChanged"; got != want {
		t.Errorf("log is %q, want %q", got, want)
	}
	list := controltest.MustCall(t, b, "registry.replicas", "")
	if !strings.Contains(list, `"key":"m/ps:0/0","state":"AVAILABLE"`) {
		t.Errorf("replicas %s", list)
	}
	if got := controltest.MustCall(t, b, "pulse.registry.heartbeat", `{"container":{"id":"s0","kind":"serving"},"leaving":true}`); got != `{"lease_ms":0}` {
		t.Errorf("answer to the last heartbeat %s", got)
	}
	if got := types(t, b); !strings.HasSuffix(got, "stateChanged lost lost") {
		t.Errorf("log is %q, want the replica and the container lost at its end", got)
	}
	for payload, says := range map[string]string{
		``:                        "container is missing",
		`{"contaner":{}}`:         "contaner",
		`{"container":{"id":""}}`: "must be named",
	} {
		_, err := controltest.Call(t, b, "pulse.registry.heartbeat", payload)
		var refusal *bus.CommandError
		if !errors.As(err, &refusal) || refusal.Code != "INVALID" || !strings.Contains(refusal.Message, says) {
			t.Errorf("%s: %v, want INVALID that says %q", payload, err, says)
		}
	}
	junk := controltest.Publish(t, b, events.Join(controltest.BZID, "replica", "m/ps:0/0"), `junk`)
	asked := controltest.Publish(t, b, events.Join(controltest.BZID, "container", "s0"), `{"painted":{}}`)
	for _, seq := range []uint64{junk, asked} {
		if l := controltest.Letter(t, b, seq); l.By != "replica-registry" {
			t.Errorf("letter %+v", l)
		}
	}
	// What others put on the subject does not stop the owner.
	controltest.Beat(t, b, ps(replica.State_AVAILABLE))
	if got := types(t, b); !strings.HasSuffix(got, "reported resourceReported registered") {
		t.Errorf("log is %q", got)
	}
}

// beats sends heartbeats every 500 ms until told to stop.
func beats(t *testing.T, b bus.Bus, hb *replica.Heartbeat, during time.Duration) {
	for range during / (500 * time.Millisecond) {
		controltest.Beat(t, b, hb)
		time.Sleep(500 * time.Millisecond) // synctest: no time passes for the machine
	}
}

func lost(t *testing.T, b bus.Bus) int { return controltest.Count(t, b, controltest.Of("lost")) }

func TestLeaseExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		defer b.Close()
		stop := start(t, b)
		beats(t, b, ps(replica.State_AVAILABLE), 20*time.Second)
		if n := lost(t, b); n != 0 {
			t.Fatalf("%d lost while it beat\n%s", n, controltest.Story(t, b))
		}
		quiet := time.Now()
		time.Sleep(2400 * time.Millisecond) // 2.9 s since the last one
		synctest.Wait()
		if n := lost(t, b); n != 0 {
			t.Fatalf("%d lost before the time-out", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		all := controltest.All(t, b)
		end := all[len(all)-2:]
		if lost(t, b) != 2 || end[0].Header.Type != "lost" || end[1].Subject != events.Join(controltest.BZID, "container", "s0") {
			t.Fatalf("after %v:\n%s", time.Since(quiet), controltest.Story(t, b))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := lost(t, b); n != 2 {
			t.Fatalf("lost again: %d\n%s", n, controltest.Story(t, b))
		}
		beats(t, b, ps(replica.State_AVAILABLE), 5*time.Second)
		if got := types(t, b); !strings.HasSuffix(got, "lost lost reported resourceReported registered") {
			t.Fatalf("back: %s", got)
		}
		stop()
	})
}

// A registry that starts grants everybody one full time-out, and not more.
func TestRestartGrantsOneTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		defer b.Close()
		stop := start(t, b)
		controltest.Beat(t, b, ps(replica.State_AVAILABLE))
		stop()
		time.Sleep(time.Hour)
		stop = start(t, b)
		time.Sleep(2900 * time.Millisecond)
		synctest.Wait()
		if n := lost(t, b); n != 0 {
			t.Fatalf("%d lost before a full time-out", n)
		}
		time.Sleep(700 * time.Millisecond)
		synctest.Wait()
		if n := lost(t, b); n != 2 {
			t.Fatalf("%d lost after it, want replica and container", n)
		}
		stop()
	})
}

// Of two registries a heartbeat reaches only one, and both keep the lease.
func TestTwoRegistries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		defer b.Close()
		defer start(t, b)()
		defer start(t, b)()
		for i := range 40 {
			hb := ps(replica.State_AVAILABLE)
			controltest.Beat(t, b, hb)
			if i%2 == 0 { // so that every heartbeat of s0 goes to the same one
				controltest.MustCall(t, b, "registry.replicas", "")
				controltest.MustCall(t, b, "registry.state", `{"view":"fleet"}`)
			}
			time.Sleep(500 * time.Millisecond)
		}
		if got := types(t, b); got != "reported resourceReported registered" {
			t.Fatalf("log is %s", got)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if got := types(t, b); got != "reported resourceReported registered lost lost" {
			t.Fatalf("log is %s: both declare it lost, one is stored", got)
		}
	})
}

// away is a bus whose log stops answering.
type away struct {
	bus.Bus
	gone chan struct{}
}

type awayLog struct {
	bus.Log
	gone chan struct{}
}

func (a away) Log() bus.Log { return awayLog{a.Bus.Log(), a.gone} }

func (a awayLog) LastOf(ctx context.Context, s events.Subject) (uint64, error) {
	select {
	case <-a.gone:
		return 0, fmt.Errorf("%w: unplugged", bus.ErrUnavailable)
	default:
		return a.Log.LastOf(ctx, s)
	}
}

// While the bus is away no heartbeat can arrive: nobody is declared lost for that.
func TestBusAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mem.New()
		defer m.Close()
		b := away{m, make(chan struct{})}
		stop := start(t, b)
		controltest.Beat(t, m, ps(replica.State_AVAILABLE))
		close(b.gone)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := lost(t, m); n != 0 {
			t.Fatalf("%d lost", n)
		}
		stop()
	})
}

// A stock ZooKeeper client sees what heartbeats say, and is told when it changes.
func TestZooKeeperPort(t *testing.T) {
	b := mem.New()
	s, err := replicaregistry.New(replicaregistry.Config{ZKListen: "127.0.0.1:0"}, controltest.Env(b))
	if err != nil {
		t.Fatal(err)
	}
	controltest.Start(t, s)
	controltest.Beat(t, b, ps(replica.State_LOADING))
	conn, _, err := zk.Connect([]string{s.ZKAddr()}, controltest.Patience, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const path = "/" + controltest.BZID + "/service/m/ps:0/0"
	data, _, changed, err := conn.GetW(path)
	if err != nil || !strings.Contains(string(data), `"stat": 20`) {
		t.Fatalf("%s is %s, %v", path, data, err)
	}
	controltest.Beat(t, b, ps(replica.State_AVAILABLE))
	select {
	case e := <-changed:
		if e.Type != zk.EventNodeDataChanged {
			t.Errorf("told of %v", e)
		}
	case <-time.After(controltest.Patience):
		t.Fatal("no watch event")
	}
	if data, _, err = conn.Get(path); err != nil || !strings.Contains(string(data), `"stat": 30`) {
		t.Errorf("%s is %s, %v", path, data, err)
	}
}

// Supervisors and shards read nothing of their own subjects: what others put there is
// parked by the registry.
func TestParksForTasks(t *testing.T) {
	b := mem.New()
	start(t, b)
	subjects := []events.Subject{
		events.Join(controltest.BZID, "server", "s0"), events.Join(controltest.BZID, "server", "s0").Request(),
		events.Join(controltest.BZID, "shard", "j/ps:0"), events.Join(controltest.BZID, "shard", "j/ps:0").Request(),
	}
	for i, subject := range subjects {
		seq, err := b.DeadLetters().Park(t.Context(), bus.Parked{Reason: "to be sent", By: "test", Stream: "test", StreamSeq: uint64(i + 1), Subject: string(subject), Data: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.DeadLetters().Redrive(t.Context(), seq, nil); err != nil {
			t.Fatal(err)
		}
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(wait.Patience); ; {
		all, err := b.DeadLetters().List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		parked := map[events.Subject]int{} // among the letters that were sent here, as they were taken up
		for _, l := range all {
			if l.By == "replica-registry" && l.Stream == "MONOLITH" {
				parked[events.Subject(l.Subject)]++
			}
		}
		if len(all) == 2*len(subjects) {
			for _, s := range subjects {
				if parked[s] != 1 {
					t.Errorf("%s was parked %d times: %+v", s, parked[s], all)
				}
			}
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("letters %+v", all)
		}
	}
}
