package modelserver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

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

// Of several that do not fit, the first is named.
func TestTheFirstOfManyRowsThatDoNotFitIsNamed(t *testing.T) {
	d := &delta.Delta{Rows: []*delta.Rows{
		{Table: "movie", Dim: 2, Ids: []uint64{9}, Values: floatBytes(1, 2)},
		{Table: "first", Dim: 2}, {Table: "second", Dim: 2},
		{Table: "user", Dim: 2, Ids: []uint64{9}, Values: floatBytes(1, 2)},
	}}
	if err := newPS(t).apply(d, 7, 1); err == nil || !strings.Contains(err.Error(), `"first"`) {
		t.Errorf("%v", err)
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
		if p.Version != want || p.Values[0][0] != x || p.Values[1][0] != y {
			t.Errorf("as of %d: %v and %v; want %d, %v and %v", p.Version, p.Values[0][0], p.Values[1][0], want, x, y)
		}
	}
	apply := func(seq uint64, d *delta.Delta) error { return m.apply(d, seq) }
	x0, y0 := m.params.Load().Values[0][0], m.params.Load().Values[1][0]
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

func stored(t *testing.T, seq uint64, d *delta.Delta) bus.StoredDelta {
	t.Helper()
	data, err := proto.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return bus.StoredDelta{Seq: seq, Data: data}
}
