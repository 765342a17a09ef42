package modelserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/projections/lineage"
)

func TestDefaultsAreOnlyForWhatIsNotSaid(t *testing.T) {
	want := Config{Container: "c", GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", Rows: "127.0.0.1:0", SampleRate: 0.01, MaxBatch: 4096,
		LookupTimeout: 200 * time.Millisecond, LookupRetries: 2, LoadBytes: 256 << 20, PollInterval: time.Second, Linger: 5 * time.Second,
		SignalInterval: 200 * time.Millisecond, Drain: 5 * time.Second}
	got := Config{Container: "c"}
	got.setDefaults()
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("defaults\n%+v, want\n%+v", got, want)
	}
	own := Config{Container: "c", GRPC: "h:1", HTTP: "h:2", Rows: "unix:///x", SampleRate: -1, MaxBatch: 1, LookupTimeout: 1, LookupRetries: 1,
		LoadBytes: 1, PollInterval: 2, Linger: 3, SignalInterval: 4, Drain: 5}
	kept := own
	kept.setDefaults()
	if fmt.Sprintf("%+v", kept) != fmt.Sprintf("%+v", own) {
		t.Errorf("one's own became\n%+v, want\n%+v", kept, own)
	}
	for name, tc := range map[string]struct {
		change func(*Config)
		ok     bool
	}{
		"every sample":     {func(c *Config) { c.SampleRate = 1 }, true},
		"more than every":  {func(c *Config) { c.SampleRate = 1.01 }, false},
		"the largest":      {func(c *Config) { c.MaxBatch = 1 << 16 }, true},
		"beyond":           {func(c *Config) { c.MaxBatch = 1<<16 + 1 }, false},
		"no bytes":         {func(c *Config) { c.LoadBytes = -1 }, false},
		"most retries":     {func(c *Config) { c.LookupRetries = maxRetries }, true},
		"more retries":     {func(c *Config) { c.LookupRetries = maxRetries + 1 }, false},
		"fewer than none":  {func(c *Config) { c.LookupRetries = -1 }, false},
		"a negative drain": {func(c *Config) { c.Drain = -1 }, false},
		"no http port":     {func(c *Config) { c.HTTP = "host" }, false},
	} {
		c := want
		tc.change(&c)
		if err := c.Validate(); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Which of several versions of a model go.
func TestRetire(t *testing.T) {
	now := time.Unix(1000, 0)
	ps := func(asked time.Time) *servable {
		m := &psModel{}
		m.asked.Store(asked.UnixNano())
		return &servable{ps: m}
	}
	entry := &servable{entry: &entryModel{}}
	const linger = 10 * time.Second
	long, short := now.Add(-linger), now.Add(-linger+1)
	type vs = map[int64]*version
	for name, tc := range map[string]struct {
		versions vs
		wanted   []int64
		gone     bool // not configured any more
		stopped  []int64
	}{
		"nothing is configured":         {vs{1: {state: stateAvailable, data: entry, settled: true}, 2: {state: stateLoading}}, nil, true, []int64{1, 2}},
		"all are wanted":                {vs{1: {state: stateAvailable, data: entry, settled: true}, 2: {state: stateLoading}}, []int64{1, 2}, false, nil},
		"a wanted one answers":          {vs{1: {state: stateAvailable, data: entry, settled: true}, 2: {state: stateAvailable, data: entry, settled: true}}, []int64{2}, false, []int64{1}},
		"a wanted one is not settled":   {vs{1: {state: stateAvailable, data: entry, settled: true, begunAt: 1}, 2: {state: stateAvailable, data: entry, begunAt: 2}}, []int64{2}, false, nil},
		"a wanted one loads":            {vs{1: {state: stateAvailable, data: entry, settled: true}, 2: {state: stateLoading}}, []int64{2}, false, nil},
		"its files vanish":              {vs{1: {state: stateAvailable, data: entry, settled: true}}, nil, false, nil},
		"one that loads beside another": {vs{1: {state: stateAvailable, data: entry, settled: true}, 2: {state: stateLoading}}, []int64{1}, false, []int64{2}},
		"only the first load goes on":   {vs{1: {state: stateStart, begunAt: 5}, 2: {state: stateLoading, begunAt: 4}, 3: {state: stateLoading, begunAt: 6}}, []int64{9}, false, []int64{1, 3}},
		"the first was stopped":         {vs{1: {state: stateLoading, begunAt: 5}, 2: {state: stateLoading, begunAt: 4, unloaded: true}}, []int64{9}, false, nil},
		"what has ended stays":          {vs{1: {state: stateEnd}, 2: {state: stateAvailable, data: entry, settled: true}}, []int64{2}, false, nil},
		"what is stopped stays":         {vs{1: {state: stateUnloading, unloaded: true}, 2: {state: stateAvailable, data: entry, settled: true}}, []int64{2}, true, []int64{2}},
		"an unsettled older one":        {vs{1: {state: stateAvailable, data: entry, begunAt: 1}, 2: {state: stateAvailable, data: entry, begunAt: 2}}, []int64{2}, false, []int64{1}},
		"rows somebody asks for": {vs{1: {state: stateAvailable, data: ps(now), settled: true, unwanted: long},
			2: {state: stateAvailable, data: ps(now), settled: true}}, []int64{2}, false, nil},
		"rows not long enough unwanted": {vs{1: {state: stateAvailable, data: ps(long), settled: true, unwanted: short},
			2: {state: stateAvailable, data: ps(now), settled: true}}, []int64{2}, false, nil},
		"rows asked for too lately": {vs{1: {state: stateAvailable, data: ps(short), settled: true, unwanted: long},
			2: {state: stateAvailable, data: ps(now), settled: true}}, []int64{2}, false, nil},
		"rows nobody asks for": {vs{1: {state: stateAvailable, data: ps(long), settled: true, unwanted: long},
			2: {state: stateAvailable, data: ps(now), settled: true}}, []int64{2}, false, []int64{1}},
		"rows just replaced": {vs{1: {state: stateAvailable, data: ps(long), settled: true},
			2: {state: stateAvailable, data: ps(now), settled: true}}, []int64{2}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServables(nil, linger, health.New())
			var stopped []int64
			before := map[int64]bool{}
			for n, v := range tc.versions {
				v.number, before[n] = n, v.unloaded
				v.stop = func() { stopped = append(stopped, n) }
			}
			s.retire(tc.versions, now, !tc.gone, func(n int64) bool { return slices.Contains(tc.wanted, n) })
			slices.Sort(stopped)
			if !slices.Equal(stopped, tc.stopped) {
				t.Errorf("stopped %v, want %v", stopped, tc.stopped)
			}
			for n, v := range tc.versions {
				if want := before[n] || slices.Contains(tc.stopped, n); v.unloaded != want {
					t.Errorf("version %d is unloaded: %v", n, v.unloaded)
				}
				if slices.Contains(tc.wanted, n) && !tc.gone && !v.unwanted.IsZero() {
					t.Errorf("version %d is wanted, and unwanted since %v", n, v.unwanted)
				}
			}
		})
	}
	v := &version{state: stateAvailable, data: ps(now), settled: true, unwanted: long, stop: func() {}}
	newServables(nil, linger, health.New()).retire(vs{1: v}, now, true, func(int64) bool { return true })
	if !v.unwanted.IsZero() {
		t.Error("wanted again, and its time goes on")
	}
}

// What requests are told of versions that do not answer.
func TestWhyAVersionDoesNotAnswer(t *testing.T) {
	s := newServables(nil, 0, health.New())
	s.configs = map[string]tfserving.Model{"m:entry": {}, "none": {}}
	g := &servable{entry: &entryModel{version: 3}}
	s.models = map[string]map[int64]*version{
		"m:entry": {
			1: {name: "m:entry", number: 1, state: stateEnd},
			2: {name: "m:entry", number: 2, state: stateEnd, err: &loadError{codes.NotFound, errors.New("no such file")}},
			3: {name: "m:entry", number: 3, state: stateAvailable, data: g},
			4: {name: "m:entry", number: 4, state: stateLoading},
			5: {name: "m:entry", number: 5, state: stateStart},
			6: {name: "m:entry", number: 6, state: stateUnloading},
		},
		"gone:entry": {7: {name: "gone:entry", number: 7, state: stateAvailable, data: &servable{entry: &entryModel{version: 7}}}},
	}
	s.reindex()
	x := s.index.Load()
	if found, err := x.find(tfserving.Spec("m", 0)); err != nil || len(found) != 1 || found[0] != g {
		t.Errorf("the one there is: %v, %v", found, err)
	}
	for _, tc := range []struct {
		name   string
		number int64
		code   codes.Code
		says   string
	}{
		{"m", 3, codes.OK, ""}, {"m:entry", 3, codes.OK, ""},
		{"m", 1, codes.NotFound, "Servable not found"}, {"m", 2, codes.Unavailable, "END: no such file"},
		{"m", 4, codes.Unavailable, "LOADING"}, {"m", 5, codes.Unavailable, "START"}, {"m", 6, codes.NotFound, "Specific(m, 6)"},
		{"m", 8, codes.NotFound, "Specific(m, 8)"}, {"none", 0, codes.Unavailable, "no version of it has been found"},
		{"gone", 0, codes.NotFound, "Latest(gone)"}, {"gone", 7, codes.NotFound, "Specific(gone, 7)"}, {"", 0, codes.InvalidArgument, "Missing ModelSpec"},
	} {
		found, err := x.find(tfserving.Spec(tc.name, tc.number))
		if status.Code(err) != tc.code || !strings.Contains(fmt.Sprint(err), tc.says) || (len(found) == 1) != (tc.code == codes.OK) {
			t.Errorf("%s, version %d: %v, %v; want %v saying %q", tc.name, tc.number, found, err, tc.code, tc.says)
		}
	}
	delete(s.models["m:entry"], 3)
	s.reindex()
	if _, err := s.index.Load().find(tfserving.Spec("m", 0)); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "version 5 is START") {
		t.Errorf("none that answers: %v", err)
	}
	s.expects = func(name string) bool { return name == "soon" }
	s.reindex()
	for name, want := range map[string]codes.Code{"soon": codes.Unavailable, "never": codes.NotFound} {
		if _, err := s.index.Load().find(tfserving.Spec(name, 0)); status.Code(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Ended versions are shown until there are too many of them.
func TestTheOldestEndedVersionsAreForgotten(t *testing.T) {
	s := newServables(nil, 0, health.New())
	fill := func(n int) {
		s.models = map[string]map[int64]*version{"first": {0: {name: "first", state: stateEnd}}, "m": {-1: {state: stateLoading}}}
		for i := range int64(n - 1) {
			s.models["m"][i+1] = &version{name: "m", number: i + 1, state: stateEnd, endedAt: uint64(i + 1)}
		}
		s.forget()
	}
	if fill(maxEnded); len(s.models["m"]) != maxEnded || s.models["first"] == nil {
		t.Errorf("%d ended versions became %d", maxEnded, len(s.models["m"])-1)
	}
	if fill(maxEnded + 1); len(s.models["m"]) != maxEnded+1 || s.models["first"] != nil {
		t.Errorf("of %d ended versions the oldest is still there, and %d others", maxEnded+1, len(s.models["m"])-1)
	}
	if fill(maxEnded + 3); len(s.models["m"]) != maxEnded+1 || s.models["m"][2] != nil || s.models["m"][3] == nil || s.models["m"][-1] == nil {
		t.Errorf("of %d ended versions %d are there", maxEnded+3, len(s.models["m"])-1)
	}
}

func TestRowsOfAVersionAndAJob(t *testing.T) {
	s := newServables(nil, 0, health.New())
	newest, old := newPS(t), newPS(t)
	newest.version, newest.job = 4, "j"
	old.version, old.job = 3, "i"
	s.index.Store(&index{rows: map[shardKey][]*psModel{{"m", 0}: {newest, old}}})
	r := rows{s}
	for _, tc := range []struct {
		version int64
		job     string
		want    *psModel
	}{{0, "", newest}, {4, "", newest}, {3, "", old}, {0, "i", old}, {0, "j", newest}, {4, "j", newest}, {3, "j", nil}, {4, "i", nil}, {5, "", nil}, {0, "k", nil}} {
		newest.asked.Store(0)
		old.asked.Store(0)
		res, err := r.Lookup(context.Background(), &rowwire.LookupRequest{Model: "m", Version: tc.version, Job: tc.job})
		switch {
		case tc.want == nil:
			if rowwire.CodeOf(err) != rowwire.NotFound || !strings.Contains(err.Error(), "but 4 of") {
				t.Errorf("version %d of %q: %v, %v", tc.version, tc.job, res, err)
			}
		case err != nil || res.Version != tc.want.version:
			t.Errorf("version %d of %q: %+v, %v", tc.version, tc.job, res, err)
		}
		named := tc.version != 0 || tc.job != ""
		for _, m := range []*psModel{newest, old} {
			if asked := m.asked.Load() != 0; asked != (named && m == tc.want) {
				t.Errorf("version %d of %q: version %d was asked for: %v", tc.version, tc.job, m.version, asked)
			}
		}
	}
	if _, err := r.Lookup(context.Background(), &rowwire.LookupRequest{Model: "m", Shard: 1}); rowwire.CodeOf(err) != rowwire.NotFound || !strings.Contains(err.Error(), "m:ps_1 is not served here") {
		t.Errorf("another shard: %v", err)
	}
}

func TestLookupsOfAShardAreBounded(t *testing.T) {
	m := newPS(t)
	if err := m.apply(&delta.Delta{Step: 8, Rows: []*delta.Rows{{Table: "user", Dim: 2, Ids: []uint64{1, 2, 3}, Values: make([]byte, 24)}}}, 77, 5); err != nil {
		t.Fatal(err)
	}
	for n, ok := range map[int]bool{maxFloats / 2: true, maxFloats/2 + 1: false} {
		_, err := m.lookup(&rowwire.LookupRequest{Tables: []rowwire.TableIDs{{Table: "user", IDs: make([]int64, n)}}})
		if (err == nil) != ok {
			t.Errorf("%d rows at once: %v", n, err)
		}
	}
	for limit, want := range map[uint32]int{0: 3, 1: 1, 2: 2, 3: 3, 4: 3} {
		res, err := m.scan(&rowwire.ScanRequest{Table: "user", After: math.MinInt64, Limit: limit})
		if err != nil || len(res.IDs) != want || res.More != (want < 3) || len(res.Values) != 2*want || res.Seqs[0] != 77 || res.UnixSec[0] != 5 {
			t.Errorf("a scan of %d rows: %+v, %v", limit, res, err)
		}
	}
	var ids []uint64
	for id := range uint64(maxScan + 1) {
		ids = append(ids, id)
	}
	if err := m.apply(&delta.Delta{Rows: []*delta.Rows{{Table: "movie", Dim: 2, Ids: ids, Values: make([]byte, 8*len(ids))}}}, 78, 5); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []uint32{0, maxScan, maxScan + 1} {
		if res, err := m.scan(&rowwire.ScanRequest{Table: "movie", After: math.MinInt64, Limit: limit}); err != nil || len(res.IDs) != maxScan || !res.More {
			t.Errorf("a scan of %d rows: %d, %v", limit, len(res.IDs), err)
		}
	}
}

// Rows that contradict themselves change nothing of their table, and keep no other's.
func TestRowsThatContradictThemselves(t *testing.T) {
	good := &delta.Rows{Table: "movie", Dim: 2, Ids: []uint64{9}, Values: floatBytes(1, 2)}
	nan := float32(math.NaN())
	for name, tc := range map[string]struct {
		bad  *delta.Rows
		want string // of the error; none: it is applied
	}{
		"an unknown table": {&delta.Rows{Table: "shop", Dim: 2, Ids: []uint64{1}, Values: floatBytes(1, 2)}, "is not in the export"},
		"another dim":      {&delta.Rows{Table: "user", Dim: 1, Ids: []uint64{1}, Values: floatBytes(1)}, "rows have dim 1"},
		"another encoding": {&delta.Rows{Table: "user", Dim: 2, Encoding: 9, Ids: []uint64{1}, Values: floatBytes(1, 2)}, "unknown encoding 9"},
		"too few bytes":    {&delta.Rows{Table: "user", Dim: 2, Ids: []uint64{1, 2}, Values: floatBytes(1, 2)}, "2 rows of dim 2 came with 8 bytes"},
		"too many bytes":   {&delta.Rows{Table: "user", Dim: 2, Ids: []uint64{1}, Values: floatBytes(1, 2, 3)}, "came with 12 bytes"},
		"not finite":       {&delta.Rows{Table: "user", Dim: 2, Ids: []uint64{4, 5, 6}, Values: floatBytes(1, nan, nan, 1, 3, 4)}, ""},
	} {
		m := newPS(t)
		told := ""
		if name == "not finite" {
			m.unfit = func(table string, rows int, id int64) { told = fmt.Sprintf("%s %d %d", table, rows, id) }
		} else {
			m.unfit = func(string, int, int64) { t.Errorf("%s: told of rows that are not finite", name) }
		}
		err := m.apply(&delta.Delta{Step: 4, Rows: []*delta.Rows{tc.bad, good}}, 7, 1)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		users, movies := m.tables["user"].Len(), m.tables["movie"].Len()
		if movies != 1 || m.step.Load() != 4 || name == "not finite" && (users != 1 || told != "user 2 4") || name != "not finite" && users != 0 {
			t.Errorf("%s: %d users, %d movies, step %d, told %q", name, users, movies, m.step.Load(), told)
		}
		m.unfit = nil // nobody to tell
		if err := m.apply(&delta.Delta{Rows: []*delta.Rows{{Table: "user", Dim: 2, Ids: []uint64{4}, Values: floatBytes(nan, 1)}}}, 8, 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func floatBytes(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		u := math.Float32bits(x)
		b = append(b, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	return b
}

// Each thing in which an export's variable can differ from the declaration.
func TestVariablesThatDoNotFit(t *testing.T) {
	build := func(change func(map[string]checkpoint.Variable, modelspec.Variable)) error {
		spec := newEntry(t).spec
		e := &checkpoint.Entry{Spec: spec, Shards: 1, Dense: map[string]checkpoint.Variable{}}
		for _, v := range modelspec.Variables(spec) {
			e.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: modelspec.InitVariable(spec, v)}
		}
		change(e.Dense, modelspec.Variables(spec)[0])
		_, err := newEntryModel("m", 1, 1, e)
		return err
	}
	for name, change := range map[string]func(map[string]checkpoint.Variable, modelspec.Variable){
		"missing": func(d map[string]checkpoint.Variable, v modelspec.Variable) { delete(d, v.Name) },
		"longer": func(d map[string]checkpoint.Variable, v modelspec.Variable) {
			d[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: make([]float32, v.Size+1)}
		},
		"another shape": func(d map[string]checkpoint.Variable, v modelspec.Variable) {
			d[v.Name] = checkpoint.Variable{Shape: []uint32{uint32(v.Size), 1, 1}, Values: make([]float32, v.Size)}
		},
	} {
		if err := build(change); err == nil || !strings.Contains(err.Error(), "dense variable") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := build(func(map[string]checkpoint.Variable, modelspec.Variable) {}); err != nil {
		t.Errorf("the right ones: %v", err)
	}
}

// The chunks of one flush become visible together, and a flush that begins again, as after
// a writer's restart, forgets what it had.
func TestChunksOfVariables(t *testing.T) {
	m := newEntry(t)
	first, second := m.vars[0], m.vars[1]
	variable := func(v modelspec.Variable, x float32) *delta.Variable {
		return &delta.Variable{Name: v.Name, Shape: v.Shape, Values: floatBytes(slices.Repeat([]float32{x}, v.Size)...)}
	}
	at := func(want uint64, x, y float32) {
		t.Helper()
		p := m.params.Load()
		if p.seq != want || p.tensors[0][0] != x || p.tensors[1][0] != y {
			t.Errorf("as of %d: %v and %v; want %d, %v and %v", p.seq, p.tensors[0][0], p.tensors[1][0], want, x, y)
		}
	}
	apply := func(seq uint64, d *delta.Delta) error { return m.apply(d, seq) }
	x0, y0 := m.params.Load().tensors[0][0], m.params.Load().tensors[1][0]
	if err := apply(1, &delta.Delta{Chunks: 2, Dense: []*delta.Variable{variable(first, 5)}}); err != nil {
		t.Fatal(err)
	}
	at(0, x0, y0)
	if err := apply(2, &delta.Delta{Chunks: 2, Dense: []*delta.Variable{variable(second, 6)}}); err != nil { // begins again
		t.Fatal(err)
	}
	if err := apply(3, &delta.Delta{Shard: 1, Chunk: 1, Chunks: 2, Dense: nil}); err != nil { // another shard's
		t.Fatal(err)
	}
	at(3, x0, y0)
	if err := apply(4, &delta.Delta{Chunk: 1, Chunks: 2}); err != nil {
		t.Fatal(err)
	}
	at(4, x0, 6)
	for name, bad := range map[string]*delta.Variable{
		"unknown":       {Name: "x"},
		"another shape": {Name: first.Name, Shape: append(slices.Clone(first.Shape), 1), Values: make([]byte, 4*first.Size)},
		"a byte less":   {Name: first.Name, Shape: first.Shape, Values: make([]byte, 4*first.Size-1)},
		"infinite":      variable(first, float32(math.Inf(1))),
		"no number":     variable(first, float32(math.NaN())),
	} {
		if err := apply(5, &delta.Delta{Chunks: 1, Dense: []*delta.Variable{variable(second, 9), bad}}); err == nil {
			t.Errorf("%s is applied", name)
		}
		at(4, x0, 6)
	}
	if err := apply(6, &delta.Delta{Chunks: 1, Dense: []*delta.Variable{variable(first, 7)}}); err != nil {
		t.Fatal(err)
	}
	at(6, 7, 6)
}

// A delta whose chunk is not one of its chunks is no part of any flush.
func TestChunksAreCountedFromZero(t *testing.T) {
	for _, tc := range []struct {
		chunk, chunks uint32
		shard         uint32
		outcome       string
		served        int
	}{{0, 0, 0, "applied", 1}, {0, 1, 0, "applied", 1}, {0, 2, 0, "applied", 0}, {1, 2, 0, "applied", 1}, {1, 1, 0, "malformed", 0}, {2, 2, 0, "malformed", 0}, {3, 2, 0, "malformed", 0},
		{0, 1, maxShards - 1, "applied", 1}, {0, 1, maxShards, "malformed", 0}} {
		served := 0
		f := testFeed(func(*delta.Delta, uint64, time.Time) error { return nil }, func(flush) { served++ })
		d := &delta.Delta{Shard: tc.shard, Chunk: tc.chunk, Chunks: tc.chunks}
		outcome, err := f.take(t.Context(), stored(t, 1, d))
		if err != nil || outcome != tc.outcome || served != tc.served {
			t.Errorf("chunk %d of %d of shard %d: %s, served %d times, %v; want %s, %d", tc.chunk, tc.chunks, tc.shard, outcome, served, err, tc.outcome, tc.served)
		}
	}
}

func TestEpochsThatAreAskedFor(t *testing.T) {
	away := errors.New("away")
	for name, tc := range map[string]struct {
		epoch, newest uint64
		known         bool
		err           error
		outcome       string
		asked         int
	}{
		"seen":         {5, 0, false, nil, "applied", 0},
		"older":        {4, 0, false, nil, "fenced", 0},
		"taken":        {6, 6, true, nil, "applied", 1},
		"taken twice":  {6, 7, true, nil, "applied", 1},
		"not taken":    {6, 5, true, nil, "forged", 1},
		"nobody knows": {6, 0, false, nil, "applied", 1},
		"no answer":    {6, 0, false, away, "", 1},
	} {
		asked := 0
		f := testFeed(func(*delta.Delta, uint64, time.Time) error { return nil }, func(flush) {})
		f.epochs[0] = 5
		f.written = func(context.Context, string, uint32) (uint64, bool, error) {
			asked++
			return tc.newest, tc.known, tc.err
		}
		outcome, err := f.take(t.Context(), stored(t, 1, &delta.Delta{Epoch: tc.epoch, Chunks: 1}))
		if outcome != tc.outcome || !errors.Is(err, tc.err) || asked != tc.asked {
			t.Errorf("%s: %q, %v, asked %d times; want %q, %v, %d", name, outcome, err, asked, tc.outcome, tc.err, tc.asked)
		}
		want := uint64(5)
		if tc.outcome == "applied" {
			want = tc.epoch
		}
		if f.epochs[0] != want {
			t.Errorf("%s: epoch %d is the newest, want %d", name, f.epochs[0], want)
		}
	}
}

// Every way in which an answer may not be one to the question.
func TestAnswersThatDoNotFit(t *testing.T) {
	m := &entryModel{rows: exportID{3, "j"}, dims: map[string]int{"t": 2, "u": 1}}
	for name, tc := range map[string]struct {
		seqs bool
		res  rowwire.LookupResponse
		want rowwire.Code
	}{
		"right":                 {false, rowwire.LookupResponse{Version: 3, Values: [][]float32{{1, 2}, {3}}}, 0},
		"right, with sequences": {true, rowwire.LookupResponse{Version: 3, Values: [][]float32{{1, 2}, {3}}, Seqs: [][]uint64{{1}, {1}}}, 0},
		"another version":       {false, rowwire.LookupResponse{Version: 2, Values: [][]float32{{1, 2}, {3}}}, rowwire.NotFound},
		"a table less":          {false, rowwire.LookupResponse{Version: 3, Values: [][]float32{{1, 2}}}, rowwire.Invalid},
		"no sequences":          {true, rowwire.LookupResponse{Version: 3, Values: [][]float32{{1, 2}, {3}}}, rowwire.Invalid},
		"a number less":         {false, rowwire.LookupResponse{Version: 3, Values: [][]float32{{1}, {3}}}, rowwire.Invalid},
		"a sequence less":       {true, rowwire.LookupResponse{Version: 3, Values: [][]float32{{1, 2}, {3}}, Seqs: [][]uint64{{1}, {}}}, rowwire.Invalid},
	} {
		a := &ask{answer: tc.res}
		a.req = rowwire.LookupRequest{WithSeqs: tc.seqs, Tables: []rowwire.TableIDs{{Table: "t", IDs: []int64{5}}, {Table: "u", IDs: []int64{6}}}}
		if err := m.check(a); rowwire.CodeOf(err) != tc.want {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if tc.want == 0 || name == "another version" {
			any := &entryModel{dims: m.dims}
			if err := any.check(a); err != nil {
				t.Errorf("%s, where any version will do: %v", name, err)
			}
		}
	}
}

func TestBatches(t *testing.T) {
	m := newEntry(t)
	two, names := tfserving.NewInt64([]int64{1, 2}), []string{m.features[0].name, m.features[1].name}
	in := func(a, b *tfserving.TensorProto) map[string]*tfserving.TensorProto {
		return map[string]*tfserving.TensorProto{names[0]: a, names[1]: b}
	}
	for name, tc := range map[string]struct {
		inputs map[string]*tfserving.TensorProto
		limit  int
		says   string
	}{
		"two rows":        {in(two, two), 2, ""},
		"a column":        {in(two, tfserving.NewInt64([]int64{1, 2}, 2, 1)), 2, ""},
		"over the limit":  {in(two, two), 1, "input"},
		"another count":   {in(two, tfserving.NewInt64([]int64{1})), 2, "want one id for each of 2 rows"},
		"two ids a row":   {in(tfserving.NewInt64([]int64{1, 2, 3, 4}, 2, 2), two), 4, "want one id for each of 2 rows"},
		"three dims":      {in(tfserving.NewInt64([]int64{1, 2}, 2, 1, 1), two), 2, "3 dimensions"},
		"no rows":         {in(tfserving.NewInt64(nil), tfserving.NewInt64(nil)), 2, "the batch is empty"},
		"the largest id":  {in(tfserving.NewInt64([]int64{modelspec.MaxID, 0}), two), 2, ""},
		"beyond it":       {in(tfserving.NewInt64([]int64{modelspec.MaxID + 1, 0}), two), 2, "is outside"},
		"below 0":         {in(tfserving.NewInt64([]int64{0, -1}), two), 2, "row 1: id -1 is outside"},
		"another's input": {map[string]*tfserving.TensorProto{names[0]: two, "x": two}, 2, "is missing"},
		"one input":       {map[string]*tfserving.TensorProto{names[0]: two}, 2, "input size does not match"},
	} {
		var sc scratch
		n, err := sc.read(m, tc.inputs, tc.limit)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) || err == nil && (n != 2 || len(sc.fids) != 4) {
			t.Errorf("%s: %d rows, %v; want %q", name, n, err, tc.says)
		}
	}
}

func TestWhichExportsHoldAShard(t *testing.T) {
	for _, tc := range [][3]int{{12, 8, 4}, {8, 12, 4}, {5, 0, 5}, {0, 5, 5}, {7, 7, 7}, {3, 5, 1}} {
		if got := gcd(tc[0], tc[1]); got != tc[2] {
			t.Errorf("gcd(%d, %d) = %d", tc[0], tc[1], got)
		}
	}
	if got := exportDirs("/models/ps_0", 7, "", 1); !slices.Equal(got, []string{"/models/ps_1/7"}) {
		t.Errorf("beside the sub-model: %q", got)
	}
	if got := exportDirs("/models/ps_0", 7, "/models", 1); !slices.Equal(got, []string{"/models/ps_1/7"}) {
		t.Errorf("the same place twice: %q", got)
	}
	if got := exportDirs("/models/ps_0", 7, "/elsewhere", 1); !slices.Equal(got, []string{"/models/ps_1/7", "/elsewhere/ps_1/7"}) {
		t.Errorf("and where the plan says: %q", got)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, ok := firstDir([]string{filepath.Join(dir, "none"), filepath.Join(dir, "file"), dir}); !ok || got != dir {
		t.Errorf("the first folder is %q", got)
	}
	if _, ok := firstDir([]string{filepath.Join(dir, "none"), filepath.Join(dir, "file")}); ok {
		t.Error("a file is a folder")
	}
}

// An export of some shards is read into fewer, as many, and more serving shards.
func TestShardsOfAnExport(t *testing.T) {
	dir := t.TempDir()
	const exported = 4
	for j := range exported {
		s := &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: "j", Shard: uint32(j), Shards: exported, SyncSeq: uint64(10 + j), Epoch: uint64(j), Step: uint64(j)},
			Tables: map[string][]table.Row{"t": nil}}
		for id := range int64(48) {
			if modelspec.ShardOf(id, exported) == j {
				s.Tables["t"] = append(s.Tables["t"], table.Row{ID: id, Values: []float32{float32(id)}})
			}
		}
		if _, err := checkpoint.WriteShard(filepath.Join(dir, fmt.Sprint("ps_", j), "1"), s); err != nil {
			t.Fatal(err)
		}
	}
	r := newReads(1 << 30)
	for _, served := range []int{0, 1, 2, 3, 4, 6, 8} {
		shards := served
		if served == 0 {
			shards = exported
		}
		seen := map[int64]bool{}
		for k := range shards {
			g, err := r.loadPS(t.Context(), "m", filepath.Join(dir, fmt.Sprint("ps_", k)), k, 1, "", target{numPS: served})
			if err != nil {
				t.Fatalf("shard %d of %d: %v", k, served, err)
			}
			least := uint64(math.MaxUint64)
			for j, seq := range g.contained {
				least = min(least, seq)
				if seq != uint64(10+j) || g.epochs[j] != uint64(j) || g.steps[j] != uint64(j) {
					t.Errorf("shard %d of %d holds %d up to %d", k, served, j, seq)
				}
				if shards == exported && int(j) != k {
					t.Errorf("shard %d of %d was read from %d", k, served, j)
				}
			}
			if g.syncSeq != least || g.ps.shards != shards || g.ps.shard != k {
				t.Errorf("shard %d of %d goes on from %d, want %d", k, served, g.syncSeq, least)
			}
			rows, _ := g.ps.tables["t"].Rows(math.MinInt64, 100)
			for _, row := range rows {
				if seen[row.ID] || modelspec.ShardOf(row.ID, shards) != k || row.Values[0] != float32(row.ID) {
					t.Errorf("row %+v on shard %d of %d", row, k, shards)
				}
				seen[row.ID] = true
			}
		}
		if len(seen) != 48 {
			t.Errorf("%d of 48 rows are on %d shards", len(seen), shards)
		}
		if _, err := r.loadPS(t.Context(), "m", filepath.Join(dir, "ps_0"), shards, 1, "", target{numPS: served}); failed(err).code != codes.InvalidArgument {
			t.Errorf("shard %d of %d: %v", shards, served, err)
		}
	}
}

// One folder alone may always be read, and gives back what it took.
func TestReadsAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, together := range map[int64]bool{50: false, 100: false, 199: false, 200: true} {
		r := newReads(limit)
		done, err := r.take(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		second := r.sem.TryAcquire(100)
		if second != together {
			t.Errorf("a second folder within %d bytes: %v", limit, second)
		}
		if second {
			r.sem.Release(100)
		}
		done()
		if done, err = r.take(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		done()
	}
}

func TestMeteredBodies(t *testing.T) {
	all := semaphore.NewWeighted(10)
	m := &metered{r: strings.NewReader("0123456789"), all: all}
	if b, err := io.ReadAll(m); err != nil || len(b) != 10 || m.taken != 10 || all.TryAcquire(1) {
		t.Errorf("%q, %v, %d taken", b, err, m.taken)
	}
	m.done()
	m = &metered{r: strings.NewReader("0123456789a"), all: all}
	if _, err := io.ReadAll(m); !errors.Is(err, errBodies) {
		t.Errorf("a byte more: %v", err)
	}
	m.done()
	if !all.TryAcquire(10) {
		t.Error("bytes stay taken")
	}
}

func stored(t *testing.T, seq uint64, d *delta.Delta) bus.StoredDelta {
	t.Helper()
	data, err := proto.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return bus.StoredDelta{Seq: seq, Data: data}
}

// The fact of an export is believed of the files that it was written of alone.
func TestTheFactOfTheseFiles(t *testing.T) {
	job := lineage.Job{
		Exports: []events.JSON[*training.ModelExported]{{V: &training.ModelExported{Version: 1, SyncSeq: 9}}, {V: &training.ModelExported{Version: 2, SyncSeq: 20}}},
		Checkpoints: []events.JSON[*training.Checkpoint]{{V: &training.Checkpoint{Id: 2, Shards: []*training.ShardFile{
			{Shard: 0, SyncSeq: 11, Epoch: 3, Step: 5}, {Shard: 1, SyncSeq: 12, Epoch: 4, Step: 6}}}}},
	}
	entry := func(seq uint64) *servable { return &servable{entry: &entryModel{}, syncSeq: seq} }
	rows := func(seq, epoch, step uint64) *servable {
		return &servable{ps: &psModel{}, syncSeq: 1, contained: map[uint32]uint64{1: seq}, epochs: map[uint32]uint64{1: epoch}, steps: map[uint32]uint64{1: step}}
	}
	third := rows(12, 4, 6)
	third.contained[2] = 12
	for name, tc := range map[string]struct {
		n    int64
		g    *servable
		want bool
	}{
		"an entry": {2, entry(20), true}, "of another attempt": {2, entry(19), false}, "no fact": {3, entry(20), false}, "of another version": {1, entry(20), false},
		"rows": {2, rows(12, 4, 6), true}, "of another sequence": {2, rows(13, 4, 6), false}, "of another epoch": {2, rows(12, 5, 6), false}, "of another step": {2, rows(12, 4, 7), false},
		"a shard that the fact lacks": {2, third, false}, "rows without a checkpoint": {1, rows(12, 4, 6), false}, "rows without a fact": {3, rows(12, 4, 6), false},
	} {
		if fact := recorded(job, tc.n, tc.g); (fact != nil) != tc.want || fact != nil && fact.GetVersion() != tc.n {
			t.Errorf("%s: %v", name, fact)
		}
	}
}
