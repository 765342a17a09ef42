package modelserver

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/projections/lineage"
)

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
		"nothing is configured":          {vs{1: {state: stateAvailable, data: entry, settled: true}, 2: {state: stateLoading}}, nil, true, []int64{1, 2}},
		"all are wanted":                 {vs{1: {state: stateAvailable, data: entry, settled: true}, 2: {state: stateLoading}}, []int64{1, 2}, false, nil},
		"a wanted one answers":           {vs{1: {state: stateAvailable, data: entry, settled: true}, 2: {state: stateAvailable, data: entry, settled: true}}, []int64{2}, false, []int64{1}},
		"a wanted one is not settled":    {vs{1: {state: stateAvailable, data: entry, settled: true, begunAt: 1}, 2: {state: stateAvailable, data: entry, begunAt: 2}}, []int64{2}, false, nil},
		"a wanted one loads":             {vs{1: {state: stateAvailable, data: entry, settled: true}, 2: {state: stateLoading}}, []int64{2}, false, nil},
		"its files vanish":               {vs{1: {state: stateAvailable, data: entry, settled: true}}, nil, false, nil},
		"one that loads beside another":  {vs{1: {state: stateAvailable, data: entry, settled: true}, 2: {state: stateLoading}}, []int64{1}, false, []int64{2}},
		"only the first load goes on":    {vs{1: {state: stateStart, begunAt: 5}, 2: {state: stateLoading, begunAt: 4}, 3: {state: stateLoading, begunAt: 6}}, []int64{9}, false, []int64{1, 3}},
		"the first was stopped":          {vs{1: {state: stateLoading, begunAt: 5}, 2: {state: stateLoading, begunAt: 4, unloaded: true}}, []int64{9}, false, nil},
		"what has ended stays":           {vs{1: {state: stateEnd}, 2: {state: stateAvailable, data: entry, settled: true}}, []int64{2}, false, nil},
		"what is stopped stays":          {vs{1: {state: stateUnloading, unloaded: true}, 2: {state: stateAvailable, data: entry, settled: true}}, []int64{2}, true, []int64{2}},
		"an unsettled older one":         {vs{1: {state: stateAvailable, data: entry, begunAt: 1}, 2: {state: stateAvailable, data: entry, begunAt: 2}}, []int64{2}, false, []int64{1}},
		"an unsettled one beside a load": {vs{1: {state: stateAvailable, data: entry, begunAt: 1}, 2: {state: stateLoading, begunAt: 2}}, []int64{2}, false, nil},
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
			for range 20 { // versions are looked at in any order
				again := vs{}
				for n, v := range tc.versions {
					c := *v
					c.stop = func() {
						if !slices.Contains(tc.stopped, n) {
							t.Errorf("version %d is stopped", n)
						}
					}
					again[n] = &c
				}
				s.retire(again, now, !tc.gone, func(n int64) bool { return slices.Contains(tc.wanted, n) })
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
	s.refuse(tfserving.Model{Name: "none"}, &loadError{codes.Unimplemented, errors.New("not served here")})
	s.reindex()
	if _, err := s.index.Load().find(tfserving.Spec("none", 0)); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "model none does not answer: version 0 is END: not served here") {
		t.Errorf("one that is not served here: %v", err)
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
			if len(g.dropped) != 0 {
				t.Errorf("shard %d of %d has left out %v", k, served, g.dropped)
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

// An export may claim up to so many shards, and holds the one that its folder says.
func TestWhatAnExportClaims(t *testing.T) {
	r := newReads(1 << 30)
	put := func(dir string, shard, shards uint32) {
		t.Helper()
		if _, err := checkpoint.WriteShard(dir, &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: "j", Shard: shard, Shards: shards}}); err != nil {
			t.Fatal(err)
		}
	}
	for shards, ok := range map[uint32]bool{1: true, maxShards: true, maxShards + 1: false} {
		dir := t.TempDir()
		put(filepath.Join(dir, "ps_0", "1"), 0, shards)
		if _, err := r.loadPS(t.Context(), "m", filepath.Join(dir, "ps_0"), 0, 1, "", target{}); (err == nil) != ok {
			t.Errorf("rows of %d shards: %v", shards, err)
		}
		e := &checkpoint.Entry{Spec: newEntry(t).spec, Version: 1, Job: "j", Shards: shards, Dense: map[string]checkpoint.Variable{}}
		for _, v := range modelspec.Variables(e.Spec) {
			e.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: modelspec.InitVariable(e.Spec, v)}
		}
		if err := checkpoint.WriteEntry(filepath.Join(dir, "entry", "1"), e); err != nil {
			t.Fatal(err)
		}
		if _, err := r.loadEntry(t.Context(), "m", filepath.Join(dir, "entry"), 1, target{}); (err == nil) != ok {
			t.Errorf("an entry of %d shards: %v", shards, err)
		}
	}
	for name, tc := range map[string]struct {
		shard, shards uint32 // that lie where shard 1 of 2 should
		ok            bool
	}{"it": {1, 2, true}, "another shard": {0, 2, false}, "of another number": {1, 3, false}} {
		dir := t.TempDir()
		put(filepath.Join(dir, "ps_0", "1"), 0, 2)
		put(filepath.Join(dir, "ps_1", "1"), tc.shard, tc.shards)
		_, err := r.loadPS(t.Context(), "m", filepath.Join(dir, "ps_0"), 0, 1, "", target{numPS: 1})
		if (err == nil) != tc.ok || err != nil && !strings.Contains(err.Error(), "copy the export again") {
			t.Errorf("%s: %v", name, err)
		}
	}
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
