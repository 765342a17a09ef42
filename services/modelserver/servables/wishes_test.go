package servables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

func float32Bytes(x float32) []byte {
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(x))
}

// folders makes folders of versions.
func folders(t *testing.T, base string, versions ...int64) {
	t.Helper()
	for _, n := range versions {
		if err := os.MkdirAll(filepath.Join(base, fmt.Sprint(n)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// Which versions are served follows from the policy and from what lies in the base path; a serving shard beyond the
// exported ones counts from the first one's folders.
func TestWhichVersionsAreFound(t *testing.T) {
	dir := t.TempDir()
	entry, first := filepath.Join(dir, "entry"), filepath.Join(dir, "ps_0")
	folders(t, entry, 1, 2, 5)
	folders(t, first, 7)
	if err := os.WriteFile(filepath.Join(entry, "4"), nil, 0o600); err != nil { // no folder
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		name, base string
		policy     tfserving.Policy
		want       []int64
	}{
		"the newest":             {"m:entry", entry, tfserving.Policy{}, []int64{5}},
		"the newest two":         {"m:entry", entry, tfserving.Policy{Latest: 2}, []int64{2, 5}},
		"as many as there are":   {"m:entry", entry, tfserving.Policy{Latest: 9}, []int64{1, 2, 5}},
		"all":                    {"m:entry", entry, tfserving.Policy{All: true}, []int64{1, 2, 5}},
		"some":                   {"m:entry", entry, tfserving.Policy{Versions: []int64{1, 3, 4, 5}}, []int64{1, 5}},
		"nowhere":                {"m:entry", filepath.Join(dir, "none"), tfserving.Policy{}, nil},
		"a shard more":           {"m:ps_1", filepath.Join(dir, "ps_1"), tfserving.Policy{Versions: []int64{7, 8}}, []int64{7}},
		"an entry has no shards": {"m:entry", filepath.Join(dir, "none"), tfserving.Policy{Versions: []int64{7}}, nil},
		"what is no sub-model":   {"m:x", filepath.Join(dir, "x"), tfserving.Policy{Versions: []int64{7}}, nil},
	} {
		got := scanVersions(tfserving.Model{Name: tc.name, BasePath: tc.base, Policy: tc.policy}, false)
		if !slices.Equal(slices.Sorted(maps.Keys(got)), tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// A version that has failed is tried again once it is configured anew, its folder has changed, or it lies elsewhere; one
// that was unloaded begins whenever it is wanted.
func TestWhenAVersionIsTriedAgain(t *testing.T) {
	var began atomic.Int32
	failure := errors.New("it cannot be read")
	m := newManager(func(context.Context, *version) error { began.Add(1); return failure }, 0, health.New())
	dir, elsewhere := t.TempDir(), t.TempDir()
	at := time.Unix(1000, 0)
	touch := func(base string, at time.Time) {
		t.Helper()
		folders(t, base, 1)
		if err := os.Chtimes(filepath.Join(base, "1"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	touch(dir, at)
	touch(elsewhere, at)
	is := tfserving.Model{Name: "m:entry", BasePath: dir, Policy: tfserving.Policy{Versions: []int64{1}}}
	m.Configure([]tfserving.Model{is})
	look := func(what string, want int32) {
		t.Helper()
		m.reconcile(t.Context())
		m.lives.Wait()
		if began.Load() != want {
			t.Errorf("%s: it was begun %d times, want %d", what, began.Load(), want)
		}
	}
	look("configured", 1)
	look("it has failed", 1)
	if st := m.Status("m:entry", 1); len(st) != 1 || st[0].State != stateEnd || !errors.Is(st[0].Err, failure) || st[0].Code != codes.Internal {
		t.Errorf("its status: %+v", st)
	}
	touch(dir, at.Add(time.Second))
	look("its folder has changed", 2)
	look("and has failed again", 2)
	m.Configure([]tfserving.Model{is})
	look("configured anew", 3)
	look("and has failed again", 3)
	touch(dir, at)
	look("its folder has changed back", 4)
	is.BasePath = elsewhere
	m.configs["m:entry"] = is
	look("it lies elsewhere", 5)
	failure = nil
	touch(elsewhere, at.Add(time.Second))
	look("it can be read", 6)
	look("it was let go", 7)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if m.reconcile(ended); began.Load() != 7 {
		t.Error("it was begun at the end")
	}
}

// A version that is stopped has ended without an error, whatever its life says; one that goes on is begun once.
func TestAVersionThatIsStoppedHasNotFailed(t *testing.T) {
	var began atomic.Int32
	m := newManager(func(ctx context.Context, _ *version) error {
		began.Add(1)
		<-ctx.Done()
		return errors.New("interrupted")
	}, 0, health.New())
	dir := t.TempDir()
	folders(t, dir, 1)
	m.Configure([]tfserving.Model{{Name: "m:entry", BasePath: dir}})
	for range 3 {
		m.reconcile(t.Context())
	}
	m.Configure(nil)
	m.reconcile(t.Context())
	m.lives.Wait()
	if st := m.Status("m:entry", 0); began.Load() != 1 || len(st) != 1 || st[0].State != stateEnd || st[0].Err != nil {
		t.Errorf("begun %d times, %+v", began.Load(), st)
	}
}

// What is wanted of a model is what its policy names, there or not, and what lies there; the rest goes once that answers.
func TestWhatIsWantedStays(t *testing.T) {
	for name, tc := range map[string]struct {
		policy tfserving.Policy
		stops  []int64
	}{"both are named": {tfserving.Policy{Versions: []int64{1, 2}}, nil}, "one is named": {tfserving.Policy{Versions: []int64{2}}, []int64{1}}, "one lies there": {tfserving.Policy{All: true}, []int64{1}}} {
		dir := t.TempDir()
		folders(t, dir, 2)
		m := newManager(nil, 0, health.New())
		m.configs = map[string]tfserving.Model{"m:entry": {Name: "m:entry", BasePath: dir, Policy: tc.policy}}
		var stopped []int64
		m.models["m:entry"] = map[int64]*version{}
		for n := int64(1); n <= 2; n++ {
			m.models["m:entry"][n] = &version{name: "m:entry", number: n, state: stateAvailable, settled: true, begunAt: uint64(n), data: &servable{entry: answering(n)}, stop: func() { stopped = append(stopped, n) }}
		}
		if m.reconcile(t.Context()); !slices.Equal(stopped, tc.stops) {
			t.Errorf("%s: stopped are %v, want %v", name, stopped, tc.stops)
		}
	}
}

// Rows need nobody else, an entry waits for its rows; a model that answers has no failures any more.
func TestWhatAnsweringBrings(t *testing.T) {
	m := newManager(nil, 0, health.New())
	of := func(name string) *version {
		v := &version{name: name, number: 1, model: "m"}
		m.models[name] = map[int64]*version{1: v}
		m.configs[name] = tfserving.Model{}
		return v
	}
	ps, scores := of("m:ps_0"), of("m:entry")
	for range health.Reported {
		m.end(ps, errors.New("no such file"))
	}
	if m.set(ps, stateLoading, nil); !strings.HasPrefix(m.health.Summary(), "load m:ps_0: ") || ps.settled {
		t.Errorf("while it loads: %q, settled %v", m.health.Summary(), ps.settled)
	}
	g := &servable{ps: &rows.Shard{Model: "m", Version: 1}}
	if m.set(ps, stateAvailable, g); m.health.Summary() != "" || !ps.settled || !slices.Equal(m.Shards("m", 0), []*rows.Shard{g.ps}) {
		t.Errorf("once it answers: %q, settled %v, %v", m.health.Summary(), ps.settled, m.Shards("m", 0))
	}
	if m.set(ps, stateUnloading, nil); !ps.settled || len(m.Shards("m", 0)) != 0 {
		t.Errorf("while it goes: settled %v, %v", ps.settled, m.Shards("m", 0))
	}
	if m.set(scores, stateAvailable, &servable{entry: answering(1)}); scores.settled || len(m.Shards("m", 0)) != 0 {
		t.Errorf("an entry: settled %v, shards %v", scores.settled, m.Shards("m", 0))
	}
	if m.settle(scores); !scores.settled {
		t.Error("an entry that has its rows is not settled")
	}
}

// Who asks whether a model is served hears of what is configured, expected, and answering.
func TestWhetherAModelIsServed(t *testing.T) {
	m := newManager(nil, 0, health.New())
	m.configs = map[string]tfserving.Model{"a:entry": {}, "b:entry": {}}
	m.models["a:entry"] = map[int64]*version{1: {name: "a:entry", state: stateAvailable, data: &servable{entry: answering(1)}}}
	check := func(name string, known, answers bool) {
		t.Helper()
		if k, a, _ := m.Serving(name); k != known || a != answers {
			t.Errorf("%s: known %v, answers %v", name, k, a)
		}
	}
	m.reindex()
	check("a", true, true)
	check("b", true, false)
	check("c", false, false)
	m.expects = func(name string) bool { return name == "c" }
	m.reindex()
	check("a", true, true)
	check("c", true, false)
	check("d", false, false)
	for sig, want := range map[string]codes.Code{"": codes.OK, tfserving.DefaultSignature: codes.OK, "another": codes.InvalidArgument} {
		spec := tfserving.Spec("a", 0)
		spec.SignatureName = sig
		if _, err := m.Entries(spec); status.Code(err) != want {
			t.Errorf("signature %q: %v", sig, err)
		}
	}
}

// A version that never answered has nothing to unload: who watches sees it load, and end.
func TestAFailedLoadIsNeverSeenUnloading(t *testing.T) {
	m := newManager(func(context.Context, *version) error { return errors.New("no such file") }, 0, health.New())
	v := &version{name: "m:entry"}
	over := make(chan struct{})
	var watchers, watching sync.WaitGroup
	watching.Add(2)
	for range 2 { // who holds the lock for so long makes it go round: no state is passed over
		watchers.Go(func() {
			for looks := 0; ; looks++ {
				select {
				case <-over:
					return
				default:
				}
				m.mu.Lock()
				if looks == 0 {
					watching.Done()
				}
				if v.state == stateUnloading {
					t.Error("a load that fails is seen unloading")
				}
				time.Sleep(2 * time.Millisecond)
				m.mu.Unlock()
			}
		})
	}
	watching.Wait()
	for range 5 {
		m.mu.Lock()
		m.start(t.Context(), v)
		m.mu.Unlock()
		m.lives.Wait()
		if v.state != stateEnd || v.err == nil {
			t.Errorf("a load that failed is %v, %v", v.state, v.err)
		}
	}
	close(over)
	watchers.Wait()
}

// Whoever configures waits until each model answers, or all that is left of it has failed; a model that is configured
// away, or has just been, needs no waiting.
func TestWaitingForAConfiguration(t *testing.T) {
	no := &loadError{codes.DataLoss, errors.New("damaged")}
	type vs = map[int64]*version
	for name, tc := range map[string]struct {
		versions vs
		settled  bool
		code     codes.Code
	}{
		"it answers":                {vs{1: {state: stateAvailable}}, true, codes.OK},
		"it has failed":             {vs{1: {state: stateEnd, err: no}}, true, codes.DataLoss},
		"it loads":                  {vs{1: {state: stateLoading}}, false, 0},
		"it starts":                 {vs{1: {state: stateStart}}, false, 0},
		"it goes":                   {vs{1: {state: stateUnloading}}, false, 0},
		"one failed, another loads": {vs{1: {state: stateEnd, err: no}, 2: {state: stateLoading}}, false, 0},
		"it was let go":             {vs{1: {state: stateEnd}}, false, 0},
		"nothing is there":          {nil, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newManager(nil, 0, health.New())
			m.configs = map[string]tfserving.Model{"m:entry": {}}
			m.models["m:entry"] = tc.versions
			waited := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { waited <- m.Wait(ctx, nil, []string{"gone", "m:entry"}) }()
			synctest.Wait()
			if settled := len(waited) == 1; settled != tc.settled {
				t.Errorf("%s: waited for: %v", name, !settled)
			}
			cancel()
			want := tc.code
			if !tc.settled {
				want = codes.DeadlineExceeded
			}
			if err := <-waited; status.Code(err) != want || tc.settled && want != codes.OK && !strings.Contains(err.Error(), "model m:entry: damaged") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	m := newManager(nil, 0, health.New())
	m.configs, m.forced = map[string]tfserving.Model{"m:entry": {}}, map[string]bool{"m:entry": true}
	m.models["m:entry"] = vs{1: {state: stateAvailable}}
	if settled, _ := m.settled("m:entry"); settled {
		t.Error("a model that was configured anew is not looked at")
	}
}

// An export is read whole: each table of it, or an error.
func TestTablesOfAnExport(t *testing.T) {
	dir := t.TempDir()
	s := &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: "j", Shards: 1}, Tables: map[string][]table.Row{"a": {{ID: 1, Values: []float32{1}}}, "b": {{ID: 2, Values: []float32{2, 3}}}}}
	if _, err := checkpoint.WriteShard(filepath.Join(dir, "ps_0", "1"), s); err != nil {
		t.Fatal(err)
	}
	g, err := newReads(1<<30, 0).loadPS(t.Context(), "m", filepath.Join(dir, "ps_0"), 0, 1, "", target{})
	if err != nil {
		t.Fatal(err)
	}
	h := rows.NewHandler(func(string, uint32) []*rows.Shard { return []*rows.Shard{g.ps} })
	for name, dim := range map[string]uint32{"a": 1, "b": 2} {
		if res, err := h.Scan(t.Context(), &rowwire.ScanRequest{Table: name, After: table.NoID}); err != nil || len(res.IDs) != 1 || res.Dim != dim {
			t.Errorf("table %s: %+v, %v", name, res, err)
		}
	}
	g.ps = &rows.Shard{Shards: 1}
	if err := g.ps.Declare(nil, "b", 3); err != nil {
		t.Fatal(err)
	}
	if err := g.add(checkpoint.Reader{}, filepath.Join(dir, "ps_0", "1"), 0, 1); err == nil {
		t.Error("a table of another dim is taken")
	}
}
