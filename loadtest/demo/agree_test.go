package demo

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/loadtest/audit"
	"github.com/monolith-go/monolith/projections/registry"
)

// one is a shard that serves one row.
type one struct{ rowwire.Handler }

func (one) Scan(_ context.Context, r *rowwire.ScanRequest) (*rowwire.ScanResponse, error) {
	return &rowwire.ScanResponse{Dim: 1, IDs: []int64{7}, Values: []float32{0.5}}, nil
}

// Replicas whose rows ports want certificates are compared by those that the roles have; without them none is.
func TestReplicasAreComparedByTheRolesKeys(t *testing.T) {
	authority := certs.NewAuthority(t)
	keys := func(name string) *tls.Config {
		conf, err := authority.Issue(name).Load()
		if err != nil {
			t.Fatal(err)
		}
		return conf
	}
	ln, err := rowwire.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- rowwire.Serve(ctx, ln, one{}, rowwire.Options{TLS: keys("modelserver")}) }()
	defer func() { cancel(); <-served }()

	b := mem.New()
	r := &replica.Replica{ModelName: "movies", ServerType: "ps", Container: "c", RowsAddress: rowwire.Addr(ln.Addr()), Stat: replica.State_AVAILABLE}
	if _, err := b.Log().Append(ctx, bus.Draft{Subject: replica.Subject("demo", r.Key()), Expect: bus.Any, Event: &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}}}); err != nil {
		t.Fatal(err)
	}
	j := &Job{Fleet: follow.New(b.Log(), registry.Fleet.Only("demo"), follow.Options{})}
	followed := make(chan error, 1)
	go func() { followed <- j.Fleet.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-followed; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	<-j.Fleet.Ready()

	truth := audit.NewRows()
	truth.Tables["movie"] = map[int64][]float32{7: {0.5}}
	if checks, err := j.Agree(ctx, "movies", truth, 1); err == nil {
		t.Errorf("without keys %v", checks)
	}
	j.Rows = keys("demo")
	checks, err := j.Agree(ctx, "movies", truth, 1)
	if err != nil || len(checks) != 1 || !checks[0].OK {
		t.Errorf("%v, %v", checks, err)
	}
	truth.Tables["movie"][7] = []float32{0.25}
	if checks, err := j.Agree(ctx, "movies", truth, 1); err != nil || len(checks) != 1 || checks[0].OK {
		t.Errorf("another row: %v, %v", checks, err)
	}
}
