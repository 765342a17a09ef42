package shards

import (
	"context"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// setWorld is a log with the facts of shards, a set that follows it, and its health state.
type setWorld struct {
	t    *testing.T
	b    *mem.Bus
	set  *Set
	well *health.State
}

func setOf(t *testing.T, n int) *setWorld {
	w := &setWorld{t: t, b: mem.New(), well: health.New()}
	f := follow.New(w.b.Log(), registry.Fleet.Only(trainertest.BZID), follow.Options{})
	pool := rowwire.NewPool(nil)
	w.set = New(trainertest.Job, n, f, pool, nil, w.well)
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- f.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ran
		pool.Close()
		w.b.Close()
	})
	<-f.Ready()
	return w
}

func (w *setWorld) append(index uint32, e *shard.Event) {
	w.t.Helper()
	_, err := w.b.Log().Append(w.t.Context(), bus.Draft{Subject: events.Join(trainertest.BZID, "shard", shard.Aggregate(trainertest.Job, index)), Event: e, Expect: bus.Any})
	if err != nil {
		w.t.Fatal(err)
	}
}

// ready says that a shard is there.
func (w *setWorld) ready(index, shards uint32, epoch, generation uint64, addr string) {
	w.t.Helper()
	w.append(index, &shard.Event{Body: &shard.Event_Ready{Ready: &shard.Ready{
		Job: trainertest.Job, Shard: index, Shards: shards, Epoch: epoch, RowsAddress: addr, Generation: generation,
	}}})
}

func (w *setWorld) unhealthy(index uint32, epoch uint64) {
	w.t.Helper()
	w.append(index, &shard.Event{Body: &shard.Event_HealthFailed{HealthFailed: &shard.HealthFailed{Reason: "it fails", Epoch: epoch}}})
}

// caughtUp waits until the set knows what is in the log.
func (w *setWorld) caughtUp() {
	w.t.Helper()
	last, err := w.b.Log().Last(w.t.Context())
	if err == nil {
		err = w.set.fleet.Wait(w.t.Context(), last)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// says fails unless the named problem has that reason; empty: there is none.
func (w *setWorld) says(what, name, reason string) {
	w.t.Helper()
	got, ok := "", false
	for _, p := range w.well.Problems() {
		if p.Name == name {
			got, ok = p.Reason, true
		}
	}
	if ok != (reason != "") || !strings.Contains(got, reason) {
		w.t.Errorf("%s: %s: %q, want %q", what, name, got, reason)
	}
}

// variables answers with the initial variables of its model.
type variables struct {
	rowwire.Handler
	spec          *model.ModelSpec
	index, shards int
	change        func(*rowwire.NamedTensor) // of each tensor answered, unless nil
}

func (v *variables) Dense(_ context.Context, r *rowwire.DenseRequest) (*rowwire.DenseResponse, error) {
	res := &rowwire.DenseResponse{}
	vars := modelspec.Variables(v.spec)
	for i, name := range r.Names {
		at := uint32(0)
		if len(r.At) > 0 {
			at = r.At[i]
		}
		for _, b := range modelspec.BandsOf(vars, v.index, v.shards) {
			if b.Name == name && b.At == int(at) {
				res.Tensors = append(res.Tensors, rowwire.NamedTensor{Name: name, At: at, Values: modelspec.InitVariable(v.spec, vars[b.Variable])[b.At : b.At+b.Size]})
				if v.change != nil {
					v.change(&res.Tensors[len(res.Tensors)-1])
				}
			}
		}
	}
	return res, nil
}

// serve has shards of a model answer, and returns them.
func (w *setWorld) serve(spec *model.ModelSpec) (all []*variables) {
	w.t.Helper()
	for i := range w.set.Len() {
		v := &variables{spec: spec, index: i, shards: w.set.Len()}
		all = append(all, v)
		w.answer(i, v)
	}
	w.caughtUp()
	return all
}

// answer has h answer as a shard that is ready.
func (w *setWorld) answer(index int, h rowwire.Handler) {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ln, err := rowwire.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		stop()
		w.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- rowwire.Serve(ctx, ln, h, rowwire.Options{}) }()
	w.t.Cleanup(func() { stop(); <-ended })
	w.ready(uint32(index), uint32(w.set.Len()), 1, 0, rowwire.Addr(ln.Addr()))
}
