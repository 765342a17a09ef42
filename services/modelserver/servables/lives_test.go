package servables

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// exportRows writes an export of the one shard of m, of one row with a number.
func exportRows(t *testing.T, base string, version int64, syncSeq uint64, x float32) {
	t.Helper()
	s := &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: "j", Shards: 1, SyncSeq: syncSeq}, Tables: map[string][]table.Row{"user": {{ID: 1, Values: []float32{x}}}}}
	if _, err := checkpoint.WriteShard(filepath.Join(base, fmt.Sprint(version)), s); err != nil {
		t.Fatal(err)
	}
}

// published is a delta with that row.
func published(t *testing.T, b bus.Bus, x float32) {
	t.Helper()
	data, err := proto.Marshal(&delta.Delta{Job: "j", Shards: 1, Chunks: 1, Rows: []*delta.Rows{{Table: "user", Dim: 1, Ids: []uint64{1}, Values: float32Bytes(x)}}})
	if err == nil {
		_, err = b.Deltas().Publish(t.Context(), bus.DeltaDraft{Subject: bus.DeltaSubject("b", "j", "0"), Expect: bus.Any, Data: data})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// life is version 3 of m:ps_0 from its load on.
type life struct {
	t     *testing.T
	s     *keeper
	b     *mem.Bus
	base  string
	v     *version
	ended chan error
}

// begin makes a life on what lies at base; it is left to serve until ctx ends.
func begin(ctx context.Context, t *testing.T, base string, before func(*mem.Bus)) *life {
	s, b := viewing(t, false)
	before(b)
	l := &life{t: t, s: s, b: b, base: base, v: &version{name: "m:ps_0", model: "m", sub: "ps_0", number: 3, basePath: base}, ended: make(chan error, 1)}
	s.manager.configs = map[string]tfserving.Model{"m:ps_0": {}}
	s.manager.models = map[string]map[int64]*version{"m:ps_0": {3: l.v}}
	go func() { l.ended <- s.serve(ctx, l.v) }()
	synctest.Wait()
	return l
}

// serves fails unless the row that is served has that number, and the health says so.
func (l *life) serves(what string, want float32, health string) {
	l.t.Helper()
	synctest.Wait()
	versions := l.s.manager.Shards("m", 0)
	if len(versions) != 1 {
		l.t.Fatalf("%s: %d versions answer", what, len(versions))
	}
	res, err := rows.NewHandler(func(string, uint32) []*rows.Shard { return versions }).Scan(l.t.Context(), &rowwire.ScanRequest{Table: "user", After: table.NoID})
	if err != nil || len(res.Values) != 1 || res.Values[0] != want || versions[0].Version != 3 {
		l.t.Errorf("%s: %+v, %v; want %v as version 3", what, res, err, want)
	}
	if got := l.s.Health.Summary(); (got == "") != (health == "") || !strings.Contains(got, health) {
		l.t.Errorf("%s: the health says %q, want %q", what, got, health)
	}
	select {
	case err := <-l.ended:
		l.t.Errorf("%s: it has ended: %v", what, err)
	default:
	}
}

// A version answers from its load on; once the job that made it is known it follows its deltas.
func TestAVersionFollowsItsJobOnceThatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		base := filepath.Join(t.TempDir(), "ps_0")
		exportRows(t, base, 3, 0, 1)
		l := begin(ctx, t, base, func(*mem.Bus) {})
		l.serves("before its job is known", 1, "")
		appended(t, l.b, "training", "j", startedFact("j"))
		l.serves("without deltas", 1, "")
		published(t, l.b, 5)
		l.serves("with one", 5, "")
		if got := testutil.ToFloat64(l.s.loads.WithLabelValues("loaded")); got != 2 {
			t.Errorf("%v loads", got)
		}
		cancel()
		if err := <-l.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("at the end of ctx: %v", err)
		}
	})
}

// Where the deltas behind an export are gone it is served as it was exported, and people hear of it, until there is a
// newer one, whose deltas are there.
func TestAVersionWhoseDeltasAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		base := filepath.Join(t.TempDir(), "ps_0")
		exportRows(t, base, 3, 0, 1)
		l := begin(ctx, t, base, func(b *mem.Bus) {
			appended(t, b, "training", "j", startedFact("j"))
			published(t, b, 5)
			published(t, b, 6)
			if err := b.Deltas().(interface {
				Trim(context.Context, uint64) error
			}).Trim(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
		})
		l.serves("without its deltas", 1, "it is served as it was exported")
		exportRows(t, base, 4, 2, 7)
		appended(t, l.b, "training", "j", exportedFact(4))
		l.serves("of a newer export", 7, "")
		published(t, l.b, 8)
		l.serves("with the deltas behind that", 8, "")
		cancel()
		<-l.ended
	})
}

// A version that cannot be read ends, with the reason.
func TestAVersionThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := viewing(t, false)
		for _, v := range []*version{{name: "m:ps_0", model: "m", sub: "ps_0", number: 3, basePath: filepath.Join(t.TempDir(), "ps_0")}, {name: "m:entry", model: "m", sub: "entry", shard: -1, number: 3, basePath: t.TempDir()}} {
			if err := s.serve(t.Context(), v); err == nil || failed(err).code != codes.NotFound {
				t.Errorf("%s: %v", v.name, err)
			}
		}
		if got := testutil.ToFloat64(s.loads.WithLabelValues("failed")); got != 2 {
			t.Errorf("%v loads failed", got)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.serve(gone, &version{name: "m:ps_0"}); !errors.Is(err, context.Canceled) {
			t.Errorf("nobody waits: %v", err)
		}
	})
}

// What cannot be read anew is tried again until it can be; what lies where the version does is taken, whoever made it.
func TestLoadingAnewIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := viewing(t, false)
		base := filepath.Join(t.TempDir(), "ps_0")
		v := &version{name: "m:ps_0", model: "m", sub: "ps_0", number: 3, basePath: base}
		loaded := make(chan *servable, 1)
		go func() {
			g, _, _, err := s.reload(t.Context(), v, "another", exportLocation{base, 3}, s.targetOf(v), false)
			if err != nil {
				t.Error(err)
			}
			loaded <- g
		}()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(loaded) != 0 {
			t.Fatalf("%+v was loaded of nothing", <-loaded)
		}
		exportRows(t, base, 3, 0, 1)
		if g := <-loaded; g == nil || g.job != "j" {
			t.Errorf("%+v", g)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, _, _, err := s.reload(ctx, v, "j", exportLocation{base, 9}, s.targetOf(v), false); !errors.Is(err, context.Canceled) {
			t.Errorf("at the end of ctx: %v", err)
		}
	})
}

// An export that turns out to be another job's is read again and again, and nothing of it is kept.
func TestWhatIsReadInVainGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := viewing(t, false)
		base := filepath.Join(t.TempDir(), "ps_0")
		exportRows(t, base, 9, 0, 1)
		v := &version{name: "m:ps_0", model: "m", sub: "ps_0", number: 3, basePath: base}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		if _, _, _, err := s.reload(ctx, v, "another", exportLocation{base, 3}, s.targetOf(v), true); !errors.Is(err, context.Canceled) {
			t.Errorf("what another job exported is taken: %v", err)
		}
		if read := testutil.ToFloat64(s.loads.WithLabelValues("loaded")); read < 2 || len(v.held) != 0 || len(s.reads.rowSets.all) != 0 {
			t.Errorf("read %v times, %d are held, in %d row sets", read, len(v.held), len(s.reads.rowSets.all))
		}
	})
}

// known has the keeper see these jobs.
func (s *keeper) known(t *testing.T, jobs map[string]lineage.Job) {
	t.Helper()
	b := mem.New()
	st := lineage.New()
	st.Jobs = jobs
	s.Lineage = follow.New(b.Log(), follow.View[lineage.State]{
		Name: "seen", Version: 1, New: func() lineage.State { return st }, Fold: func(s lineage.State, _ events.Recorded) lineage.State { return s },
	}, follow.Options{})
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Lineage.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ran; b.Close() })
	<-s.Lineage.Ready()
}

// The fact of an export knows how far the deltas were when its cut was made, which may be further than its files say.
func TestWhereAnExportGoesOn(t *testing.T) {
	base := filepath.Join(t.TempDir(), "ps_0")
	exportRows(t, base, 3, 10, 1)
	for fact, want := range map[uint64]uint64{50: 50, 10: 10, 5: 10, 0: 10} { // 0: none
		s, _ := viewing(t, false)
		j := lineage.Job{Checkpoints: []events.JSON[*training.Checkpoint]{{V: &training.Checkpoint{Id: 3, Shards: []*training.ShardFile{{SyncSeq: 10}}}}}}
		if fact > 0 {
			j.Exports = []events.JSON[*training.ModelExported]{{V: &training.ModelExported{Version: 3, SyncSeq: fact}}}
		}
		s.known(t, map[string]lineage.Job{"j": j})
		v := &version{name: "m:ps_0", model: "m", sub: "ps_0", number: 3, basePath: base}
		g, err := s.load(t.Context(), v, exportLocation{base, 3}, target{})
		if err != nil || g.syncSeq != want {
			t.Fatalf("%+v, %v; want %d", g, err, want)
		}
		if f := s.feed(v, g, "j"); f.Next != want+1 || f.Dense {
			t.Errorf("it follows from %d on, of variables %v; want %d", f.Next, f.Dense, want+1)
		}
	}
}

// An entry of a layout, which has no plan, takes rows of any version of its job; one that is planned, or of a job that
// nobody knows, those of its own.
func TestWhichRowsAnEntryTakes(t *testing.T) {
	s, b := viewing(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	ln, err := rowwire.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	others := &rows.Shard{Model: "m", Version: 9, Job: "j", Shards: 1}
	done := make(chan struct{}, 2)
	go func() {
		_ = rowwire.Serve(ctx, ln, rows.NewHandler(func(string, uint32) []*rows.Shard { return []*rows.Shard{others} }), rowwire.Options{})
		done <- struct{}{}
	}()
	go func() { s.Rows.Run(ctx); done <- struct{}{} }()
	defer func() { cancel(); <-done; <-done }()
	appended(t, b, "replica", "m/ps:0/0", &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: &replica.Replica{ModelName: "m", ServerType: "ps", Container: "d",
		GrpcAddress: "127.0.0.1:1", HttpAddress: "127.0.0.1:1", RowsAddress: rowwire.Addr(ln.Addr()), Stat: replica.State_AVAILABLE, Version: 9}}}})
	wait.For(t, "the replica to be known", func() bool {
		return s.Rows.Everywhere(ctx, rows.Want{Model: "m", Serves: 9, Version: 9, Job: "j"}, 1)
	})
	base := filepath.Join(t.TempDir(), "entry")
	e := &checkpoint.Entry{Spec: modelspec.MovieRanking(), Version: 3, Job: "j", Shards: 1, Dense: map[string]checkpoint.Variable{}}
	for _, v := range modelspec.Variables(e.Spec) {
		e.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: modelspec.InitVariable(e.Spec, v)}
	}
	if err := checkpoint.WriteEntry(filepath.Join(base, "3"), e); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		jobs map[string]lineage.Job
		at   target
		any  bool
	}{
		"a layout": {map[string]lineage.Job{"j": {}}, target{}, true}, "a plan": {map[string]lineage.Job{"j": {}}, target{planned: true, job: "j"}, false},
		"a job of elsewhere": {map[string]lineage.Job{"k": {}}, target{}, false},
	} {
		s.known(t, tc.jobs)
		g, err := s.load(ctx, &version{name: "m:entry", model: "m", sub: "entry", shard: -1, number: 3, basePath: base}, exportLocation{base, 3}, tc.at)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := g.entry.Everywhere(ctx, s.Rows); got != tc.any {
			t.Errorf("%s: rows of version 9 are taken: %v", name, got)
		}
		if f := s.feed(&version{name: "m:entry", model: "m", sub: "entry"}, g, "j"); !f.Dense || f.Apply(&delta.Delta{Chunks: 1}, 4, time.Now()) != nil {
			t.Errorf("%s: the variables are followed: %v", name, f.Dense)
		}
	}
}
