package entry

import (
	"context"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// asking is a client of one replica, which has tables of a version of the model m, with the rows of a delta at
// sequence 42.
func asking(t *testing.T, version int64, of ...*delta.Rows) *rows.Client {
	t.Helper()
	b := mem.New()
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	t.Cleanup(func() { cancel(); parts.Wait(); _ = b.Close() })
	has := &rows.Shard{Model: "m", Version: version, Job: "j", Shards: 1}
	for _, name := range []string{"user", "movie"} {
		if err := has.Declare(nil, name, 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := has.Apply(&delta.Delta{Rows: of}, 42, 1); err != nil {
		t.Fatal(err)
	}
	ln, err := rowwire.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	parts.Go(func() {
		_ = rowwire.Serve(ctx, ln, rows.NewHandler(func(string, uint32) []*rows.Shard { return []*rows.Shard{has} }), rowwire.Options{})
	})
	replicas := follow.New(b.Log(), registry.Fleet.Only("b"), follow.Options{})
	parts.Go(func() { _ = replicas.Run(ctx) })
	pool := rowwire.NewPool(nil)
	t.Cleanup(pool.Close)
	c := rows.NewClient(replicas, pool, rows.NewMetrics(nil, "c"), wait.Patience, 0)
	parts.Go(func() { c.Run(ctx) })
	registered := &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: &replica.Replica{ModelName: "m", ServerType: "ps", Container: "c",
		GrpcAddress: "127.0.0.1:1", HttpAddress: "127.0.0.1:1", RowsAddress: rowwire.Addr(ln.Addr()), Stat: replica.State_AVAILABLE, Version: 1}}}}
	if _, err := b.Log().Append(ctx, bus.Draft{Subject: events.Join("b", "replica", "m/ps:0/0"), Event: registered, Expect: bus.Any}); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the replica to be known", func() bool {
		return c.Everywhere(ctx, rows.Want{Model: "m", Serves: version, Version: version, Job: "j"}, 1)
	})
	return c
}

// A version whose rows are nowhere is passed over for an older one, unless nobody waits any more.
func TestTheNewestVersionThatCanAnswers(t *testing.T) {
	s := &Scorer{Rows: asking(t, 1), MaxBatch: 4}
	first, second := newEntry(t), newEntry(t)
	first.Serve(2, false)
	in := map[string]*tfserving.TensorProto{"user": tfserving.NewInt64([]int64{1}), "movie": tfserving.NewInt64([]int64{2})}
	m, scores, err := s.Answer(t.Context(), []*Model{first, second}, Input{Tensors: in}, nil)
	if err != nil || m != second || len(scores) != 1 {
		t.Errorf("version %d, %v, %v; want 1", m.Version(), scores, err)
	}
	if m, _, err = s.Answer(t.Context(), []*Model{first, second}, Input{}, nil); status.Code(err) != codes.InvalidArgument || m != first {
		t.Errorf("what no version can answer: version %d, %v", m.Version(), err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if m, _, err = s.Answer(gone, []*Model{first, second}, Input{Tensors: in}, nil); err == nil || m != first {
		t.Errorf("nobody waits: version %d, %v", m.Version(), err)
	}
}
