package entry

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// The bands of a variable come from several training shards, each in its chunks; an entry holds
// what all shards together do, and takes over what one shard has published as one.
func TestBandsOfDeltas(t *testing.T) {
	spec := modelspec.MovieRanking()
	spec.Layers = append([]*model.DenseLayer{{Name: "wide", Units: 4096, Activation: model.Activation_RELU}}, spec.Layers...)
	vars := modelspec.Variables(spec)
	if n := len(modelspec.Bands(vars)); n < len(vars)+4 {
		t.Fatalf("%d variables have %d bands", len(vars), n)
	}
	const shards = 2
	e := &checkpoint.Entry{Spec: spec, Version: 1, Job: "job", Shards: shards, SyncSeq: 5, Dense: map[string]checkpoint.Variable{}}
	want := make([][]float32, len(vars)) // what training holds
	for i, v := range vars {
		want[i] = modelspec.InitVariable(spec, v)
		e.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: slices.Clone(want[i])}
	}
	m, err := New("movies", 1, shards, e)
	if err != nil {
		t.Fatal(err)
	}
	seq := uint64(5)
	chunk := func(shard uint32, bands ...modelspec.Band) *delta.Delta {
		d := &delta.Delta{Shard: shard, Shards: shards, Chunks: 1}
		for _, b := range bands {
			v := &delta.Variable{Name: b.Name, Shape: b.Shape, At: uint32(b.At)}
			for _, x := range want[b.Variable][b.At : b.At+b.Size] {
				v.Values = binary.LittleEndian.AppendUint32(v.Values, math.Float32bits(x))
			}
			d.Dense = append(d.Dense, v)
		}
		return d
	}
	for round := range 3 {
		for shard := range uint32(shards) {
			bands := modelspec.BandsOf(vars, int(shard), shards)
			for _, b := range bands {
				for j := range b.Size {
					want[b.Variable][b.At+j] += float32(round+1) * 0.5
				}
			}
			before := m.params.Load()
			for i, b := range bands {
				d := chunk(shard, b)
				d.Chunk, d.Chunks = uint32(i), uint32(len(bands))
				if m.params.Load() != before {
					t.Fatalf("chunk %d of %d is served alone", i, len(bands))
				}
				seq++
				if err := m.Apply(d, seq); err != nil {
					t.Fatal(err)
				}
			}
			for i, v := range e.Dense {
				if !slices.Equal(v.Values, modelspec.InitVariable(spec, vars[slices.IndexFunc(vars, func(w modelspec.Variable) bool { return w.Name == i })])) {
					t.Fatalf("a delta changed the values of %s that others read", i)
				}
			}
		}
		if !slices.EqualFunc(m.params.Load().Values, want, slices.Equal[[]float32]) {
			t.Fatalf("round %d: other variables than training's", round)
		}
	}
	for name, change := range badBands {
		d := chunk(0, modelspec.Bands(vars)[1])
		if name == "all of it" { // as of a build that knows no bands
			d.Dense[0].Values = make([]byte, 4*vars[modelspec.Bands(vars)[1].Variable].Size)
		}
		change(d.Dense[0])
		served := m.params.Load()
		if err := m.Apply(d, seq+1); err == nil || m.params.Load() != served {
			t.Errorf("a band %s is taken: %v", name, err)
		}
	}
}

// badBands make of a band one that no delta of this model has.
var badBands = map[string]func(*delta.Variable){
	"between two bands": func(v *delta.Variable) { v.At++ },
	"beyond the last":   func(v *delta.Variable) { v.At = 1 << 26 },
	"shorter":           func(v *delta.Variable) { v.Values = v.Values[4:] },
	"all of it":         func(v *delta.Variable) { v.At = 0 },
	"another shape":     func(v *delta.Variable) { v.Shape = v.Shape[:1] },
	"no number": func(v *delta.Variable) {
		binary.LittleEndian.PutUint32(v.Values, math.Float32bits(float32(math.NaN())))
	},
}
