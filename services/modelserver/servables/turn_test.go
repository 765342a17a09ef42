package servables

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
)

// threeReplicas is a plan of version n for shard 0 on a, c and e, by numbers 0, 1 and 2, and for shard 1 on d.
func threeReplicas(t *testing.T, b *mem.Bus, version int64) {
	e := planned(version, 2, "j")
	p := e.GetPlanned()
	p.Assignments = nil
	for i, name := range []string{"a", "c", "e"} {
		p.Assignments = append(p.Assignments, &publish.Assignment{Container: name, Replica: uint32(i), SubModels: map[string]string{"ps_0": fmt.Sprint("/m/ps_0/", version)}})
	}
	p.Assignments = append(p.Assignments, &publish.Assignment{Container: "d", SubModels: map[string]string{"ps_1": fmt.Sprint("/m/ps_1/", version)}})
	appended(t, b, "publish", "m", e)
}

func reports(t *testing.T, b *mem.Bus, container string, task, number int32, version int64, stat replica.State) {
	appended(t, b, "replica", fmt.Sprintf("m/ps:%d/%d", task, number), &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: &replica.Replica{
		ModelName: "m", ServerType: "ps", Task: task, Replica: number, Container: container, GrpcAddress: "127.0.0.1:1", HttpAddress: "127.0.0.1:1", Stat: stat, Version: version}}}})
}

// A replica that answers reads the planned version once all before it have it or are lost; what says so are
// the plan and what the replicas report. It waits a while for each, and no longer.
func TestReplicasChangeVersionInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := viewing(t, false)
		s.Turn = time.Minute
		old := &version{name: "m:ps_0", model: "m", sub: "ps_0", number: 3, state: stateAvailable}
		next := &version{name: "m:ps_0", model: "m", sub: "ps_0", number: 4}
		threeReplicas(t, b, 4)
		reports(t, b, "a", 0, 0, 3, replica.State_AVAILABLE)
		reports(t, b, "c", 0, 1, 3, replica.State_AVAILABLE)
		reports(t, b, "e", 0, 2, 3, replica.State_AVAILABLE)
		reports(t, b, "d", 1, 0, 3, replica.State_AVAILABLE)
		synctest.Wait()
		turn := func(ctx context.Context) <-chan error {
			come := make(chan error, 1)
			go func() { come <- s.turn(ctx, next) }()
			synctest.Wait()
			return come
		}
		waits := func(come <-chan error, why string) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-come:
				t.Fatalf("it does not wait for %s: %v", why, err)
			default:
			}
		}
		goes := func(come <-chan error, why string) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-come:
				if err != nil {
					t.Fatal(err)
				}
			default:
				t.Fatalf("it waits, though %s", why)
			}
		}
		goes(turn(t.Context()), "nothing answers here, and the sooner the better")
		s.manager.models["m:ps_0"] = map[int64]*version{3: old, 4: next}
		s.Container = "a"
		goes(turn(t.Context()), "it is the first")
		s.Container = "d"
		goes(turn(t.Context()), "the plan has no such shard for it")
		s.Container = "c"
		come := turn(t.Context())
		waits(come, "a, which has the version before")
		reports(t, b, "a", 0, 0, 4, replica.State_LOADING)
		waits(come, "a, which loads")
		reports(t, b, "e", 0, 2, 4, replica.State_AVAILABLE)
		waits(come, "a, whatever e does")
		reports(t, b, "a", 0, 0, 4, replica.State_AVAILABLE)
		goes(come, "a has it")
		s.Container = "e"
		come = turn(t.Context())
		waits(come, "c")
		appended(t, b, "replica", "m/ps:0/1", &replica.Event{Body: &replica.Event_Lost{Lost: &replica.Lost{Reason: "it is gone"}}})
		goes(come, "c is lost")

		threeReplicas(t, b, 5)
		reports(t, b, "c", 0, 1, 4, replica.State_AVAILABLE)
		synctest.Wait()
		next.number = 5
		come = turn(t.Context())
		time.Sleep(50 * time.Second)
		reports(t, b, "a", 0, 0, 5, replica.State_AVAILABLE)
		synctest.Wait()
		time.Sleep(50 * time.Second)
		waits(come, "c, for which it has waited 50 s")
		time.Sleep(11 * time.Second)
		goes(come, "a minute is over")
		come = turn(t.Context())
		waits(come, "c")
		threeReplicas(t, b, 6)
		goes(come, "the plan is of another version")
		next.number = 6
		ctx, cancel := context.WithCancel(t.Context())
		come = turn(ctx)
		waits(come, "a and c")
		cancel()
		if err := <-come; !errors.Is(err, context.Canceled) {
			t.Errorf("nobody wants it: %v", err)
		}
		next.shard = -1
		goes(turn(t.Context()), "an entry has no turns")
		next.shard, s.Turn = 0, 0
		goes(turn(t.Context()), "there are none")
	})
}
