package servables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// turning is a keeper of a replica that answers by version 3, and is to have another one.
type turning struct {
	*testing.T
	*keeper
	bus  *mem.Bus
	next *version
}

func startTurning(t *testing.T) *turning {
	s, b := viewing(t, false)
	s.Turn = time.Minute
	w := &turning{t, s, b, &version{name: "m:ps_0", model: "m", sub: "ps_0", number: 4}}
	threeReplicas(t, b, 4)
	for n, name := range []string{"a", "c", "e"} {
		w.reports(name, 0, int32(n), 3, replica.State_AVAILABLE)
	}
	w.reports("d", 1, 0, 3, replica.State_AVAILABLE)
	synctest.Wait()
	return w
}

func (w *turning) reports(container string, task, number int32, version int64, stat replica.State) {
	reports(w.T, w.bus, container, task, number, version, stat)
}

func (w *turning) turn(ctx context.Context, container string) <-chan error {
	w.Container = container
	come := make(chan error, 1)
	go func() { come <- w.keeper.turn(ctx, w.next) }()
	synctest.Wait()
	return come
}

func (w *turning) waits(come <-chan error, why string) {
	w.Helper()
	synctest.Wait()
	select {
	case err := <-come:
		w.Fatalf("it does not wait for %s: %v", why, err)
	default:
	}
}

func (w *turning) goes(come <-chan error, why string) {
	w.Helper()
	synctest.Wait()
	select {
	case err := <-come:
		if err != nil {
			w.Fatal(err)
		}
	default:
		w.Fatalf("it waits, though %s", why)
	}
}

// answers has version 3 answer here.
func (w *turning) answers() {
	old := &version{name: "m:ps_0", model: "m", sub: "ps_0", number: 3, state: stateAvailable}
	w.manager.models["m:ps_0"] = map[int64]*version{3: old, 4: w.next}
}

// A replica that answers reads the planned version once all before it have it or are lost; what says so are
// the plan and what the replicas report.
func TestReplicasChangeVersionInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startTurning(t)
		w.goes(w.turn(t.Context(), "c"), "nothing answers here, and the sooner the better")
		w.answers()
		w.goes(w.turn(t.Context(), "a"), "it is the first")
		w.goes(w.turn(t.Context(), "d"), "the plan has no such shard for it")
		come := w.turn(t.Context(), "c")
		w.waits(come, "a, which has the version before")
		w.reports("a", 0, 0, 4, replica.State_LOADING)
		w.waits(come, "a, which loads")
		w.reports("e", 0, 2, 4, replica.State_AVAILABLE)
		w.waits(come, "a, whatever e does")
		w.reports("a", 0, 0, 4, replica.State_AVAILABLE)
		w.goes(come, "a has it")
		come = w.turn(t.Context(), "e")
		w.waits(come, "c")
		appended(t, w.bus, "replica", "m/ps:0/1", &replica.Event{Body: &replica.Event_Lost{Lost: &replica.Lost{Reason: "it is gone"}}})
		w.goes(come, "c is lost")
	})
}

// A replica waits a while for each before it, and no longer; where the plan has moved on, it goes on in its turn.
func TestTurnsThatDoNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startTurning(t)
		w.answers()
		come := w.turn(t.Context(), "e")
		time.Sleep(50 * time.Second)
		w.reports("a", 0, 0, 4, replica.State_AVAILABLE)
		synctest.Wait()
		time.Sleep(50 * time.Second)
		w.waits(come, "c, for which it has waited 50 s")
		time.Sleep(11 * time.Second)
		w.goes(come, "a minute is over")
		come = w.turn(t.Context(), "e")
		w.waits(come, "c")
		threeReplicas(t, w.bus, 6)
		w.waits(come, "c, whose version is neither this one nor that of the plan")
		w.reports("c", 0, 1, 6, replica.State_AVAILABLE)
		w.goes(come, "c has what is planned by now")
		w.next.number = 6
		ctx, cancel := context.WithCancel(t.Context())
		come = w.turn(ctx, "e")
		w.waits(come, "a and c")
		cancel()
		if err := <-come; !errors.Is(err, context.Canceled) {
			t.Errorf("nobody wants it: %v", err)
		}
		w.next.shard = -1
		w.goes(w.turn(t.Context(), "e"), "an entry has no turns")
		w.next.shard, w.Turn = 0, 0
		var said bytes.Buffer
		w.keeper.Log = slog.New(slog.NewTextHandler(&said, nil))
		w.goes(w.turn(t.Context(), "e"), "there are none")
		if said.Len() > 0 {
			t.Errorf("without turns nothing is waited for, but it says: %s", &said)
		}
	})
}

// One that cannot load the version is passed over by all behind it, who go on one by one; what comes and goes
// between them does not have them wait for it anew.
func TestOneWaitedForInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startTurning(t)
		w.answers()
		come := w.turn(t.Context(), "e") // behind a, which cannot load, and c
		for range 6 {
			time.Sleep(9 * time.Second)
			appended(t, w.bus, "replica", "m/ps:0/1", &replica.Event{Body: &replica.Event_Lost{Lost: &replica.Lost{Reason: "it crashed"}}})
			synctest.Wait()
			w.reports("c", 0, 1, 3, replica.State_AVAILABLE)
		}
		time.Sleep(7 * time.Second) // a minute is over, by which c goes
		w.waits(come, "c, which has just begun")
		time.Sleep(30 * time.Second)
		w.reports("c", 0, 1, 4, replica.State_AVAILABLE)
		w.goes(come, "c has it, and a was waited for in vain")
	})
}
