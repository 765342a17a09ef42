package trainer

import (
	"context"
	"errors"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/trainer/internal/chief"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

// deposing is a bus on which the chief loses its lease with the first fact it appends.
type deposing struct {
	bus.Bus
	log deposingLog
}

func (d deposing) Log() bus.Log { return d.log }

type deposingLog struct {
	bus.Log
	depose context.CancelFunc
}

func (d deposingLog) Append(ctx context.Context, drafts ...bus.Draft) ([]uint64, error) {
	d.depose()
	return d.Log.Append(context.WithoutCancel(ctx), drafts...)
}

// A checkpoint that ends with the chief's lease is the next chief's to make: its caller is
// told to ask again, as of whatever passes by itself.
func TestCheckpointOfAFormerChiefIsAskedForAgain(t *testing.T) {
	w := newWorld(t, 1, 1)
	held, depose := context.WithCancel(t.Context())
	defer depose()
	s, err := New(w.config("a", 0), services.Env{BZID: bzid, Bus: deposing{w.b, deposingLog{w.b.Log(), depose}}})
	if err != nil {
		t.Fatal(err)
	}
	s.shards = shards.New(theJob, 1, s.fleet, nil, nil, nil)
	following, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.lineage.Run(following) }()
	<-s.lineage.Ready()
	_, err = s.chief().Term(1).HandleRequest(held, chief.Order{Reason: "before the upgrade"}).Reply()
	stop()
	<-ran
	var refused *bus.CommandError
	if held.Err() == nil || !errors.As(err, &refused) || refused.Code != bus.CodeUnavailable {
		t.Errorf("fenced %t, the answer is %v, want %s", held.Err() != nil, err, bus.CodeUnavailable)
	}
}
