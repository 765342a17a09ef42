package jetstream_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/bustest"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// A cluster answers nothing about streams before it has a leader, and nothing afterwards to
// who had asked by then: Connect asks again, and says what is missing when it gives up.
func TestConnectWaitsForTheLeaderOfTheCluster(t *testing.T) {
	t.Parallel()
	c := natstest.StartNodes(t, 3)
	c.Kill(1)
	c.Kill(2)
	long := 1500 * time.Millisecond
	wait.Until(t, "what is missing to be told", func() error { // on a busy machine the server answers later
		short, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		long *= 2
		_, err := jetstream.Connect(short, jetstream.Config{URL: c.NodeURL(0), Replicas: 3})
		if !errors.Is(err, bus.ErrUnavailable) {
			t.Fatalf("Connect to one server of three: %v", err)
		}
		if !strings.Contains(err.Error(), "more than half of the servers must be up") {
			return err
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	connected := make(chan error, 1)
	go func() {
		b, err := jetstream.Connect(ctx, jetstream.Config{URL: c.NodeURL(0), Replicas: 3})
		if err == nil {
			err = b.Close()
		}
		connected <- err
	}()
	c.Start(t, 1)
	c.Start(t, 2)
	if err := <-connected; err != nil {
		t.Errorf("Connect before there was a leader: %v", err)
	}
}

// Who is not told a number of replicas leaves those of the streams alone, and gives what it
// creates as many as the log has.
func TestReplicasAreThoseOfTheLog(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 3)
	one := connect(t, jetstream.Config{URL: c.URL(), Replicas: 3})
	if err := one.Log().(bus.Trimmer).KeepIn(t.Context(), "here"); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "MONOLITH_DLQ"); err != nil {
		t.Fatal(err)
	}
	two := connect(t, jetstream.Config{URL: c.URL()})
	if err := two.Log().(bus.Trimmer).KeepIn(t.Context(), "there"); err != nil {
		t.Fatal(err)
	}
	streams := 0
	list := js.ListStreams(t.Context())
	for info := range list.Info() {
		if streams++; info.Config.Replicas != 3 {
			t.Errorf("%s has %d replicas", info.Config.Name, info.Config.Replicas)
		}
	}
	if list.Err() != nil || streams != 6 {
		t.Errorf("%d streams, %v", streams, list.Err())
	}
}

// TestReplicatedContract is the contract on three replicas, of which any may answer reads.
func TestReplicatedContract(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 3)
	bustest.Run(t, func(t *testing.T) bus.Bus { return connect(t, jetstream.Config{URL: c.URL(), Replicas: 3}) })
}
