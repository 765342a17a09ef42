package entry

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

func newEntry(t testing.TB) *Model {
	spec := modelspec.MovieRanking()
	for _, tab := range spec.Tables {
		tab.Dim = 2
	}
	spec.Layers = spec.Layers[2:]
	e := &checkpoint.Entry{Spec: spec, Job: "j", Shards: 1, Dense: map[string]checkpoint.Variable{}}
	for _, v := range modelspec.Variables(spec) {
		e.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: modelspec.InitVariable(spec, v)}
	}
	m, err := New("m", 1, 1, e)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func FuzzDelta(f *testing.F) {
	for _, d := range []*delta.Delta{
		{Chunks: 2, Chunk: 1, Epoch: 3, Dense: []*delta.Variable{{Name: "dense_2/bias", Shape: []uint32{1}, Values: make([]byte, 4)}}},
		{Chunks: 1, Rows: []*delta.Rows{{Table: "user", Dim: 2, Ids: []uint64{1, 2}, Values: make([]byte, 16), Removed: []uint64{3}}}},
		{Shard: math.MaxUint32}, {Takeover: true},
	} {
		b, err := proto.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d delta.Delta
		if proto.Unmarshal(data, &d) != nil {
			return
		}
		m := newEntry(t)
		for seq := range uint64(2) {
			_ = m.Apply(&d, seq+1) // what does not fit is refused
		}
		for i, v := range m.params.Load().Values {
			if len(v) != m.vars[i].Size {
				t.Fatalf("variable %s has %d values", m.vars[i].Name, len(v))
			}
		}
	})
}

func floatBytes(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
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
		_, err := New("m", 1, 1, e)
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
	apply := func(seq uint64, d *delta.Delta) error { return m.Apply(d, seq) }
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
