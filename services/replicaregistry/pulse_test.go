package replicaregistry_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

// refusedBeat sends a heartbeat that must be refused as a conflict, and returns why.
func refusedBeat(t *testing.T, b bus.Bus, hb *replica.Heartbeat) string {
	t.Helper()
	body, err := events.Marshal(hb)
	if err != nil {
		t.Fatal(err)
	}
	_, err = controltest.Call(t, b, "pulse.registry.heartbeat", string(body))
	var refusal *bus.CommandError
	if !errors.As(err, &refusal) || refusal.Code != "CONFLICT" {
		t.Fatalf("heartbeat %s: %v, want CONFLICT", body, err)
	}
	return refusal.Message
}

// A heartbeat that arrives behind a later one of its process changes nothing, and one that
// arrives when its process has left brings nothing back.
func TestLateHeartbeatsArePassedOver(t *testing.T) {
	b := mem.New()
	startLeasing(t, b, longLease)
	var pulse replica.Pulse
	loading := pulse.Stamp(ps(replica.State_LOADING))
	available := pulse.Stamp(ps(replica.State_AVAILABLE))
	leaving := pulse.Stamp(&replica.Heartbeat{Container: proto.CloneOf(available.GetContainer()), Leaving: true})
	controltest.Beat(t, b, available)
	want := types(t, b)
	controltest.Beat(t, b, loading)
	if got := types(t, b); got != want {
		t.Errorf("a late heartbeat changed %q to %q", want, got)
	}
	controltest.Beat(t, b, leaving)
	want = types(t, b)
	for _, late := range []*replica.Heartbeat{loading, available} {
		if why := refusedBeat(t, b, late); !strings.Contains(why, "has left") {
			t.Errorf("refused because %s", why)
		}
	}
	if got := types(t, b); got != want {
		t.Errorf("the container came back: %q, then %q", want, got)
	}
	controltest.Beat(t, b, leaving) // twice is no harm
	var next replica.Pulse
	controltest.Beat(t, b, next.Stamp(ps(replica.State_AVAILABLE)))
	if got := types(t, b); !strings.HasSuffix(got, "registered") {
		t.Errorf("its next process was not taken: %q", got)
	}
}

// Of two processes with one container id the later one counts, the other one is told so,
// and the log does not grow with every heartbeat. When the later one is gone, the other
// one is taken.
func TestTwoProcessesOfOneContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		defer func() { _ = b.Close() }()
		start(t, b)
		var first, second replica.Pulse
		at := func(p *replica.Pulse, address string) *replica.Heartbeat {
			hb := ps(replica.State_AVAILABLE)
			hb.Container.GrpcAddress, hb.Replicas[0].GrpcAddress = address, address
			return p.Stamp(hb)
		}
		controltest.Beat(t, b, at(&first, "one:1"))
		time.Sleep(time.Second)
		controltest.Beat(t, b, at(&second, "two:1"))
		want := types(t, b)
		for range 10 {
			if why := refusedBeat(t, b, at(&first, "one:1")); !strings.Contains(why, "two:1") || !strings.Contains(why, "--container") {
				t.Errorf("refused because %s", why)
			}
			controltest.Beat(t, b, at(&second, "two:1"))
			time.Sleep(500 * time.Millisecond)
		}
		if got := types(t, b); got != want {
			t.Errorf("ten heartbeats of each changed %q to %q", want, got)
		}
		time.Sleep(5 * time.Second) // the later one is lost
		controltest.Beat(t, b, at(&first, "one:1"))
		if list := controltest.MustCall(t, b, "registry.replicas", ""); !strings.Contains(list, "one:1") {
			t.Errorf("the one that is left was not taken: %s", list)
		}
	})
}
