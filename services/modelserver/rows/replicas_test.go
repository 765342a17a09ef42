package rows

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/projections/fleet"
)

// fleetOf is a fleet of these replicas, all alive.
func fleetOf(t *testing.T, all ...*replica.Replica) *follow.Follower[fleet.State] {
	t.Helper()
	b := mem.New()
	f := follow.New(b.Log(), follow.View[fleet.State]{
		Name: "fleet", Version: 1,
		New: func() fleet.State {
			s := fleet.New()
			for i, r := range all {
				s.Replicas[fmt.Sprint(i)] = fleet.Replica{Replica: events.JSON[*replica.Replica]{V: r}, Alive: r.GetContainer() != "dead"}
			}
			return s
		},
		Fold: func(s fleet.State, _ events.Recorded) fleet.State { return s },
	}, follow.Options{})
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- f.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ran; b.Close() })
	<-f.Ready()
	return f
}

// Rows are asked of replicas alone that live, serve rows, answer, and say where, and of those that are lost
// where a shard has no other; they keep what is known of them while they stay, and who has left is forgotten.
func TestWhichReplicasAreAsked(t *testing.T) {
	of := func(task int32, addr string, change func(*replica.Replica)) *replica.Replica {
		r := &replica.Replica{ModelName: "m", ServerType: "ps", Task: task, Replica: 3, Stat: replica.State_AVAILABLE, RowsAddress: addr, Container: "c"}
		change(r)
		return r
	}
	same := func(*replica.Replica) {}
	all := []*replica.Replica{
		of(0, "h:1", same), of(0, "h:2", same), of(1, "h:1", same),
		of(0, "h:3", func(r *replica.Replica) { r.Container = "dead" }),
		of(0, "h:4", func(r *replica.Replica) { r.ServerType = "entry" }),
		of(0, "h:5", func(r *replica.Replica) { r.Stat = replica.State_LOADING }),
		of(0, "", same), of(-1, "h:6", same), of(0, "h:7", func(r *replica.Replica) { r.ModelName = "n" }),
		of(2, "h:8", func(r *replica.Replica) { r.Container = "dead" }), // nobody else has the shard
	}
	var dropped []string
	r := newRoutes(fleetOf(t, all...), func(addr string) { dropped = append(dropped, addr) })
	r.rebuild()
	got := map[string]string{}
	for key := range *r.byShard.Load() {
		var addrs []string
		for _, e := range r.replicas(key) {
			addrs = append(addrs, fmt.Sprint(e.addr, "/", e.replica))
		}
		slices.Sort(addrs)
		got[fmt.Sprint(key.model, ":", key.shard)] = strings.Join(addrs, " ")
	}
	if want := "map[m:0:h:1/3 h:2/3 m:1:h:1/3 m:2:h:8/3 n:0:h:7/3]"; fmt.Sprint(got) != want {
		t.Errorf("asked are %v, want %s", got, want)
	}
	if r.replicas(shardKey{"m", 9}) != nil {
		t.Error("a shard that nobody serves has replicas")
	}
	known := r.replicas(shardKey{"m", 1})[0]
	r.fleet = fleetOf(t, all[1:]...)
	if r.rebuild(); len(dropped) != 0 || r.replicas(shardKey{"m", 1})[0] != known {
		t.Errorf("one that stays is another, dropped are %q", dropped)
	}
	r.fleet = fleetOf(t, all[1])
	if r.rebuild(); !slices.Contains(dropped, "h:1") || slices.Contains(dropped, "h:2") || len(r.known) != 1 {
		t.Errorf("dropped are %q, known %d", dropped, len(r.known))
	}
}

// Every shard that has something to answer is asked, all at the same time; one that cannot answer fails the look-up.
func TestEveryShardIsAsked(t *testing.T) {
	s := asking(t, wait.Patience, 0)
	w := Want{Model: "m", Serves: 1, Version: 1, Job: "j"}
	choices := map[shardKey]*choice{}
	for k := range 3 {
		has := &Shard{Model: "m", Version: 1, Job: "j", Shards: 1}
		if err := has.Declare(nil, "user", 1); err != nil {
			t.Fatal(err)
		}
		if _, err := has.Add("user", []table.Row{{ID: 7, Values: []float32{float32(k + 1)}}}); err != nil {
			t.Fatal(err)
		}
		h := NewHandler(func(_ string, shard uint32) []*Shard {
			if int(shard) != k {
				return nil
			}
			return []*Shard{has}
		})
		choices[shardKey{"m", uint32(k)}] = &choice{all: []*endpoint{{addr: answering(t, h)}}}
	}
	s.routes.byShard.Store(&choices)
	ask := func(shards ...int) ([]float32, error) {
		l := NewLookup(3)
		var blocks []runtime.Block
		for _, k := range shards {
			blocks = append(blocks, runtime.Block{Table: "user", Dim: 1, IDs: []int64{7}, Rows: make([]float32, 1)})
			l.shards[k].reset()
			l.shards[k].split(w, uint32(k), blocks[len(blocks)-1:], false)
		}
		err := s.Lookup(t.Context(), w, l)
		var got []float32
		for _, b := range blocks {
			got = append(got, b.Rows...)
		}
		return got, err
	}
	for _, tc := range []struct {
		shards []int
		want   []float32
	}{{nil, nil}, {[]int{0}, []float32{1}}, {[]int{2}, []float32{3}}, {[]int{0, 1}, []float32{1, 2}}, {[]int{0, 1, 2}, []float32{1, 2, 3}}} {
		if got, err := ask(tc.shards...); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("shards %v answer %v, %v; want %v", tc.shards, got, err, tc.want)
		}
	}
	for k := range 3 {
		none := map[shardKey]*choice{}
		for key, c := range choices {
			if int(key.shard) != k {
				none[key] = c
			}
		}
		s.routes.byShard.Store(&none)
		if _, err := ask(0, 1, 2); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), fmt.Sprint("m:ps_", k)) {
			t.Errorf("without shard %d: %v", k, err)
		}
	}
}

// A shard that cannot answer the first of several requests is not asked the others.
func TestAShardThatCannotAnswerIsAskedNoMore(t *testing.T) {
	s := asking(t, wait.Patience, 0)
	s.routes.byShard.Store(&map[shardKey]*choice{{"m", 0}: {all: []*endpoint{{addr: answering(t, refuser{code: rowwire.Invalid})}}}})
	w := Want{Model: "m", Serves: 1, Version: 1, Job: "j"}
	l := NewLookup(1)
	n := maxFloats + 1
	l.shards[0].reset()
	l.shards[0].split(w, 0, []runtime.Block{{Table: "t", Dim: 1, IDs: make([]int64, n), Rows: make([]float32, n)}}, false)
	if len(l.shards[0].asks) < 2 {
		t.Fatalf("%d rows are asked for in one request", n)
	}
	if err := s.Lookup(t.Context(), w, l); status.Code(err) != codes.Unavailable {
		t.Errorf("Lookup = %v", err)
	}
	if got := value(t, s.metrics.lookups.WithLabelValues("refused")); got != 1 {
		t.Errorf("it was asked %v times", got)
	}
}

// However many replicas lack a version, a bounded number is asked.
func TestReplicasAreAskedABoundedNumberOfTimes(t *testing.T) {
	s := asking(t, wait.Patience, 1)
	lacks, c := answering(t, refuser{code: rowwire.NotFound}), &choice{}
	for range 3 * (MaxRetries + 1) {
		c.all = append(c.all, &endpoint{addr: lacks})
	}
	s.routes.byShard.Store(&map[shardKey]*choice{{"m", 0}: c})
	w := Want{Model: "m", Serves: 1, Version: 1, Job: "j"}
	var h shardScratch
	h.reset()
	h.split(w, 0, []runtime.Block{{Table: "user", Dim: 2, IDs: []int64{1}, Rows: make([]float32, 2)}}, false)
	if err := s.ask(t.Context(), w, &h.asks[0]); status.Code(err) != codes.Unavailable {
		t.Errorf("ask = %v", err)
	}
	if got := value(t, s.metrics.lookups.WithLabelValues("missing")); got != 2*(MaxRetries+1) {
		t.Errorf("%v replicas were asked", got)
	}
}

// A version is everywhere once each shard has a replica with its rows; who cannot be reached does not count, and
// who lacks them is noted.
func TestWhetherRowsAreEverywhere(t *testing.T) {
	has := newPS(t)
	has.Version, has.Job = 1, "j"
	w := Want{Model: "m", Serves: 1, Version: 1, Job: "j"}
	good := &endpoint{addr: answering(t, serving(has))}
	lacks := &endpoint{addr: answering(t, refuser{code: rowwire.NotFound})}
	away := &endpoint{addr: "127.0.0.1:1"}
	for name, tc := range map[string]struct {
		all  []*endpoint
		want bool
	}{"one has them": {[]*endpoint{good}, true}, "one of three": {[]*endpoint{away, lacks, good}, true}, "none is there": {nil, false}, "it is away": {[]*endpoint{away}, false}, "it lacks them": {[]*endpoint{lacks}, false}} {
		s := asking(t, wait.Patience, 0)
		good.lacks(w.export()) // as it said before
		lacks.missing.Store(nil)
		s.routes.byShard.Store(&map[shardKey]*choice{{"m", 0}: {all: tc.all}})
		if got := s.Everywhere(t.Context(), w, 1); got != tc.want {
			t.Errorf("%s: everywhere %v", name, got)
		}
		if slices.Contains(tc.all, good) != (good.missing.Load() == nil) || slices.Contains(tc.all, lacks) != (lacks.missing.Load() != nil) {
			t.Errorf("%s: the one that has them is believed to lack them: %v, the other: %v", name, good.missing.Load() != nil, lacks.missing.Load() != nil)
		}
		if s.Everywhere(t.Context(), w, 2) {
			t.Errorf("%s: the second shard, that nobody serves, has them", name)
		}
	}
}

// Rows of an export go into the table that the model declares: those of this shard, as far as they are finite.
func TestRowsOfAnExport(t *testing.T) {
	spec := modelspec.MovieRanking()
	spec.Tables[0].Dim = 2
	name := spec.Tables[0].Name
	m := &Shard{Model: "m", Shards: 2}
	var mine, others []int64
	for id := int64(1); len(mine) < 4 || len(others) < 2; id++ {
		if modelspec.ShardOf(id, 2) == 0 {
			mine = append(mine, id)
		} else {
			others = append(others, id)
		}
	}
	row := func(id int64, x float32) table.Row {
		return table.Row{ID: id, Values: []float32{1, x}, Slots: []float32{9}, Tag: 5}
	}
	var nan = float32(0)
	nan /= nan
	if err := m.Declare(spec, name, 2); err != nil {
		t.Fatal(err)
	}
	dropped, err := m.Add(name, []table.Row{row(mine[0], 1), row(others[0], nan), row(mine[1], nan), row(others[1], 1), row(mine[2], 2)})
	if err != nil || dropped != 1 || count(m, name) != 2 {
		t.Fatalf("%d rows are dropped, %v", dropped, err)
	}
	if dropped, err := m.Add(name, []table.Row{row(mine[3], 4)}); err != nil || dropped != 0 || count(m, name) != 3 {
		t.Errorf("of another training shard: %d rows are dropped, %v", dropped, err)
	}
	res, err := serving(m).Scan(t.Context(), &rowwire.ScanRequest{Model: "m", Table: name, After: table.NoID})
	if err != nil || len(res.IDs) != 3 || slices.Max(res.Seqs) != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := serving(m).Scan(t.Context(), &rowwire.ScanRequest{Model: "x", Table: name}); rowwire.CodeOf(err) != rowwire.NotFound {
		t.Errorf("rows of a model that is not served: %v", err)
	}
	for what, tc := range map[string]struct {
		name string
		dim  int
	}{"a table that is not declared": {"x", 2}, "rows of another dim": {spec.Tables[1].Name, 3}} {
		if err := m.Declare(spec, tc.name, tc.dim); err == nil || m.tables[tc.name] != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := m.Apply(&delta.Delta{Rows: []*delta.Rows{{Table: name, Dim: 2, Removed: []uint64{uint64(mine[0]), uint64(others[0])}}}}, 6, 1); err != nil || count(m, name) != 2 {
		t.Errorf("a row that went: %d rows, %v", count(m, name), err)
	}
}
