package runtime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-faster/city"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// The features of rich, in its order.
const (
	richUser = iota
	richTaste
	richHistory
	richGenres
	richMovie
)

// rich has several ids of a feature, a sequence, features that share a slot, a crossed one, floats,
// and two tasks of which one has weights.
func rich() *model.ModelSpec {
	proto := modelspec.MovieRanking().Tables[0]
	spec := &model.ModelSpec{Name: "rich", DenseOptimizer: proto.Optimizer, Features: []*model.Feature{
		{Name: "user", Field: "user", Slot: 1, Table: "user"},
		{Name: "taste", Slot: 5, Table: "taste", Cross: []string{"user", "genres"}},
		{Name: "history", Field: "history", Slot: 2, Table: "movie", Pooling: model.Feature_FIRSTN, MaxSequenceLength: 4, Missing: model.Feature_EMPTY},
		{Name: "genres", Field: "genres", Slot: 3, Table: "genre", Pooling: model.Feature_MEAN, Missing: model.Feature_EMPTY},
		{Name: "movie", Field: "movie", Slot: 2, Table: "movie"},
	}}
	for i, name := range []string{"user", "genre", "movie", "taste"} {
		spec.Tables = append(spec.Tables, &model.Table{Name: name, Dim: []uint32{3, 2, 4, 3}[i], Initializer: proto.Initializer, Optimizer: proto.Optimizer})
	}
	spec.Floats = []*model.Float{{Name: "age", Field: "age"}, {Name: "vec", Field: "vec", Dim: 3}}
	spec.Outputs = []*model.Output{{Name: "x", Slices: []string{"user", "genres", "movie", "taste"}}, {Name: "h", Slices: []string{"history"}}}
	all := []string{"x", "seen", "age", "vec"}
	spec.Layers = []*model.DenseLayer{
		{Name: "seen", Inputs: []string{"h"}, Kind: &model.DenseLayer_Pool{Pool: &model.Pool{}}},
		{Name: "like", Units: 1, Inputs: all},
		{Name: "stars", Units: 1, Inputs: all},
	}
	half := float32(0.5)
	spec.Tasks = []*model.Task{
		{Name: "like", Logit: "like", Label: &model.Label{Field: "like", Threshold: 1}, Weight: &half, WeightField: "w", MaskField: "m"},
		{Name: "stars", Logit: "stars", Label: &model.Label{Field: "stars", Raw: true}, Loss: model.Task_MSE},
	}
	return spec
}

// drawRich makes samples of rich, whose ids repeat within a feature and between those of a slot.
func drawRich(rng *rand.Rand, n int) (all []Sample) {
	ids := func(slot uint32, n int) (ids []int64) {
		for range n {
			ids = append(ids, modelspec.FID(slot, rng.Int64N(9)))
		}
		return ids
	}
	for range n {
		s := Sample{IDs: make([][]int64, 5)}
		s.IDs[richUser], s.IDs[richMovie] = ids(1, 1), ids(2, 1+rng.IntN(2)*rng.IntN(2))
		s.IDs[richHistory], s.IDs[richGenres] = ids(2, rng.IntN(7)), ids(3, rng.IntN(4))
		s.Floats = [][]float32{{rng.Float32()}, {rng.Float32(), -rng.Float32(), 2}}
		s.Labels = []float32{float32(rng.IntN(2)), 5 * rng.Float32()}
		if rng.IntN(4) > 0 {
			s.Weights = []float32{float32(rng.IntN(3)), 7}
		}
		all = append(all, s)
	}
	return all
}

// crossedByHand are the ids of taste.
func crossedByHand(s Sample) (ids []int64) {
	for _, user := range s.IDs[richUser] {
		for _, genre := range s.IDs[richGenres] {
			key := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(user)), uint64(genre))
			ids = append(ids, 5<<48|int64(city.Hash64(key)&(1<<48-1)))
		}
	}
	return ids
}

type rowKey struct {
	table string
	id    int64
}

// richStep is a step of rich in float64, pooled by hand.
func richStep(all []Sample, w *Weights) (losses [2]float64, scores [2][]float64, rows map[rowKey][]float64) {
	rows = map[rowKey][]float64{}
	type piece struct {
		key   rowKey
		at    int
		scale float64
	}
	dims := map[string]int{"user": 3, "genre": 2, "movie": 4, "taste": 3}
	for _, s := range all {
		var x [20]float64
		var pieces []piece
		read := func(table string, ids []int64, at int, mean bool) {
			for _, id := range ids {
				p := piece{rowKey{table, id}, at, 1}
				if mean {
					p.scale = 1 / float64(len(ids))
				}
				for i, v := range rowOf(id, dims[table]) {
					x[at+i] += p.scale * float64(v)
				}
				pieces = append(pieces, p)
			}
		}
		read("user", s.IDs[richUser], 0, false)
		read("genre", s.IDs[richGenres], 3, true)
		read("movie", s.IDs[richMovie], 5, false)
		read("taste", crossedByHand(s), 9, false)
		read("movie", s.IDs[richHistory][:min(4, len(s.IDs[richHistory]))], 12, false)
		for i, v := range slices.Concat(s.Floats...) {
			x[16+i] = float64(v)
		}
		var slope [20]float64
		for task := range 2 {
			kernel, z := w.Values[2*task], float64(w.Values[2*task+1][0])
			for i := range x {
				z += x[i] * float64(kernel[i])
			}
			y, d, weight := float64(s.Labels[task]), 0.0, 1.0
			if task == 0 {
				if s.Weights != nil {
					weight = float64(s.Weights[0])
				}
				losses[0] += weight * (math.Max(z, 0) - z*y + math.Log1p(math.Exp(-math.Abs(z))))
				z = 1 / (1 + math.Exp(-z))
				d = 0.5 * weight * (z - y)
			} else {
				losses[1] += (z - y) * (z - y)
				d = 2 * (z - y)
			}
			scores[task] = append(scores[task], z)
			for i := range slope {
				slope[i] += d * float64(kernel[i])
			}
		}
		for _, p := range pieces {
			if rows[p.key] == nil {
				rows[p.key] = make([]float64, dims[p.key.table])
			}
			for i := range rows[p.key] {
				rows[p.key][i] += p.scale * slope[p.at+i]
			}
		}
	}
	return losses, scores, rows
}

func near(a float32, b float64) bool { return math.Abs(float64(a)-b) <= 1e-4*(1+math.Abs(b)) }

// Several ids, sequences, shared slots, crossed features, floats, tasks and weights are pooled and
// learnt as a plain loop over the samples does.
func TestRichSamplesAreWhatAPlainLoopPools(t *testing.T) {
	spec := rich()
	for _, shards := range []int{1, 3} {
		e := engineOf(t, spec, shards, 200)
		w, b, l := weightsOf(t, e), e.NewBatch(), e.NewLane()
		for _, n := range []int{1, 40, 5, 200} {
			all := drawRich(rand.New(rand.NewPCG(uint64(n), 3)), n)
			b.Reset()
			for _, s := range all {
				if err := b.Add(s); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Seal(); err != nil {
				t.Fatal(err)
			}
			lookUp(b)
			got, err := e.Train(l, b, w)
			if err != nil {
				t.Fatal(err)
			}
			losses, scores, rows := richStep(all, w)
			if !near(float32(got.Loss), losses[0]/2+losses[1]) || !near(float32(got.Losses[0]), losses[0]) || !near(float32(got.Losses[1]), losses[1]) {
				t.Errorf("%d samples: a loss of %v and %v, want %v", n, got.Loss, got.Losses, losses)
			}
			served, err := e.Score(l, b, w, nil)
			if err != nil {
				t.Fatal(err)
			}
			for task := range scores {
				for i, want := range scores[task] {
					if !near(got.Scores[task][i], want) || math.Float32bits(served[task][i]) != math.Float32bits(got.Scores[task][i]) {
						t.Fatalf("%d samples: task %d of sample %d is %g, served %g, want %g", n, task, i, got.Scores[task][i], served[task][i], want)
					}
				}
			}
			seen := map[rowKey]bool{}
			for shard := range shards {
				for _, block := range b.Blocks(shard) {
					for i, id := range block.IDs {
						key := rowKey{block.Table, id}
						if seen[key] || modelspec.ShardOf(id, shards) != shard {
							t.Fatalf("row %#x of %s is asked for twice, or of shard %d", id, block.Table, shard)
						}
						seen[key] = true
						for k, g := range block.Grads[i*block.Dim : (i+1)*block.Dim] {
							if want := rows[key]; want == nil || !near(g, want[k]) {
								t.Fatalf("%d samples: the gradient of row %#x of %s is %g at %d, want %v", n, id, block.Table, g, k, want)
							}
						}
					}
				}
			}
			if len(seen) != len(rows) {
				t.Errorf("%d samples read %d rows, want %d", n, len(seen), len(rows))
			}
			for i, s := range all {
				s.IDs[richTaste] = crossedByHand(s)
				s.IDs[richHistory] = s.IDs[richHistory][:min(4, len(s.IDs[richHistory]))]
				if b.lengths[0][i] != float32(len(s.IDs[richHistory])) {
					t.Errorf("the history of sample %d has the length %g", i, b.lengths[0][i])
				}
				for f := range s.IDs {
					if !slices.Equal(b.IDs(f, i), s.IDs[f]) {
						t.Fatalf("sample %d has %v of feature %d, want %v", i, b.IDs(f, i), f, s.IDs[f])
					}
					for k, id := range s.IDs[f] {
						shard, block, at := b.Place(f, i, k)
						if got := b.Blocks(shard)[block]; got.IDs[at] != id || got.Table != spec.Features[f].Table {
							t.Fatalf("id %d of feature %d of sample %d is placed at row %d of %s", k, f, i, at, got.Table)
						}
					}
				}
			}
		}
	}
}

// Columns with row splits are the batch that their samples make, crossed features too.
func TestRaggedColumns(t *testing.T) {
	spec := rich()
	e := engineOf(t, spec, 2, 60)
	w, l := weightsOf(t, e), e.NewLane()
	rows, columns := e.NewBatch(), e.NewBatch()
	all := drawRich(rand.New(rand.NewPCG(8, 8)), 60)
	for _, s := range all {
		if err := rows.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	for f := range spec.Features {
		var ids []int64
		splits := []int32{0}
		for _, s := range all {
			ids = append(ids, s.IDs[f]...)
			splits = append(splits, int32(len(ids)))
		}
		if f == richUser {
			splits = nil
		}
		if err := columns.Column(f, ids, splits); (err == nil) != (f != richTaste) {
			t.Fatal(f, err)
		}
	}
	if err := columns.Seal(); err == nil || !strings.Contains(err.Error(), `float "age" has 0 numbers for 60 samples`) {
		t.Errorf("without floats: %v", err)
	}
	for f := range spec.Floats {
		var values []float32
		for _, s := range all {
			values = append(values, s.Floats[f]...)
		}
		if err := columns.FloatColumn(f, values); err != nil {
			t.Fatal(err)
		}
	}
	var scores [2][][]float32
	for i, b := range []*Batch{rows, columns} {
		if err := b.Seal(); err != nil {
			t.Fatal(err)
		}
		lookUp(b)
		var err error
		if scores[i], err = e.Score(l, b, w, nil); err != nil {
			t.Fatal(err)
		}
	}
	for task := range spec.Tasks {
		if !slices.Equal(bitsOf(scores[0][task]), bitsOf(scores[1][task])) {
			t.Errorf("task %d: the scores of columns differ", task)
		}
	}
	for name, err := range map[string]error{
		"one more":   columns.Column(richGenres, nil, []int32{0, 0}),
		"row splits": columns.Column(richGenres, nil, []int32{1}),
		"multiple":   columns.FloatColumn(1, make([]float32, 4)),
	} {
		if err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	columns.Reset()
	if err := columns.Column(richGenres, []int64{3 << 48, 3 << 48}, []int32{0, 2, 1, 2}); err == nil || !strings.Contains(err.Error(), "falls from 2 to 1") {
		t.Errorf("row splits that fall: %v", err)
	}
	if err := columns.Column(richGenres, []int64{3 << 48, 4 << 48}, []int32{0, 1, 2}); err == nil || !strings.Contains(err.Error(), "sample 1") || columns.ids[richGenres].samples() != 0 {
		t.Errorf("an id of another slot: %v", err)
	}
}

// A sample is refused whole, with the feature named, and the batch stays as it was.
func TestRichSamplesAreAddedWhole(t *testing.T) {
	spec := rich()
	spec.Features[richTaste].Cross = []string{"user", "genres", "history"}
	e := engineOf(t, spec, 2, 3)
	b := e.NewBatch()
	good := drawRich(rand.New(rand.NewPCG(1, 1)), 2)
	for _, s := range good {
		if err := b.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	many := func(slot uint32, n int) []int64 { return slices.Repeat([]int64{modelspec.FID(slot, 1)}, n) }
	for want, change := range map[string]func(*Sample){
		"ids of 4 features":                      func(s *Sample) { s.IDs = s.IDs[:4] },
		"1 floats":                               func(s *Sample) { s.Floats = s.Floats[:1] },
		`float "vec" has 2 numbers`:              func(s *Sample) { s.Floats = [][]float32{{1}, {1, 2}} },
		"1 labels":                               func(s *Sample) { s.Labels = s.Labels[:1] },
		"1 weights":                              func(s *Sample) { s.Weights = []float32{1} },
		`feature "genres": id`:                   func(s *Sample) { s.IDs[richGenres] = append(many(3, 2), many(4, 1)...) },
		`feature "genres" has 16385 ids`:         func(s *Sample) { s.IDs[richGenres] = many(3, MaxIDs+1) },
		`feature "taste" has more than 4096 ids`: func(s *Sample) { s.IDs[richGenres], s.IDs[richHistory] = many(3, 1025), many(2, 4) },
		`feature "taste" is crossed`:             func(s *Sample) { s.IDs[richTaste] = many(5, 1) },
	} {
		s := good[0]
		s.IDs = slices.Clone(s.IDs)
		change(&s)
		if err := b.Add(s); err == nil || !strings.Contains(err.Error(), want) || b.Len() != 2 {
			t.Errorf("%s: %v, %d samples", want, err, b.Len())
		}
	}
	s := good[0]
	s.IDs = slices.Clone(s.IDs)
	s.IDs[richGenres], s.IDs[richHistory] = many(3, 1024), many(2, 9) // of which 4 are read
	if err := b.Add(s); err != nil || len(b.IDs(richTaste, 2)) != MaxCombinations || len(b.IDs(richHistory, 2)) != 4 {
		t.Errorf("4096 combinations: %v, %d", err, len(b.IDs(richTaste, 2)))
	}
	b.Truncate(2)
	if b.Len() != 2 || len(b.Weights(0)) != 2 || b.Weights(1) != nil || len(b.Labels(1)) != 2 || !slices.Equal(b.Floats(1, 1), good[1].Floats[1]) {
		t.Error("what was added is not taken back")
	}
	if err := b.Seal(); err != nil {
		t.Error(err)
	}
	b.Reset()
	s.IDs[richGenres], s.IDs[richHistory] = many(3, MaxIDs), nil
	one := engineOf(t, rich(), 1, 4000)
	b = one.NewBatch()
	s.IDs[richTaste], s.IDs[richUser] = nil, nil // no combinations
	for range MaxBatchIDs/MaxIDs - 1 {
		if err := b.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Add(s); !errors.Is(err, ErrFull) {
		t.Errorf("a batch of %d samples takes another: %v", b.Len(), err)
	}
}

// Samples that read nothing have the score of no rows.
func TestSamplesWithoutIDs(t *testing.T) {
	e := engineOf(t, rich(), 3, 8)
	w, b, l := weightsOf(t, e), e.NewBatch(), e.NewLane()
	for range 3 {
		if err := b.Add(Sample{IDs: make([][]int64, 5), Floats: [][]float32{{0}, {0, 0, 0}}, Labels: []float32{1, 2}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Seal(); err != nil {
		t.Fatal(err)
	}
	r, err := e.Train(l, b, w)
	if err != nil {
		t.Fatal(err)
	}
	for shard := range 3 {
		if blocks := b.Blocks(shard); len(blocks) > 0 {
			t.Errorf("shard %d is asked for %v", shard, blocks)
		}
	}
	for _, score := range r.Scores[1] {
		if score != w.Values[3][0] {
			t.Errorf("a score of %g, the bias is %g", score, w.Values[3][0])
		}
	}
}

// The ids of crossed features stand in checkpoints: they never change.
func TestCrossedIDsStay(t *testing.T) {
	e := engineOf(t, rich(), 1, 1)
	b := e.NewBatch()
	s := Sample{IDs: [][]int64{{modelspec.FID(1, 7)}, nil, nil, {modelspec.FID(3, 9), modelspec.FID(3, 10)}, {modelspec.FID(2, 1)}}, Floats: [][]float32{{0}, {0, 0, 0}}, Labels: []float32{0, 0}}
	if err := b.Add(s); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", b.IDs(richTaste, 0)); got != goldenCrossed {
		t.Errorf("%s, they were %s", got, goldenCrossed)
	}
}

const goldenCrossed = "[584858729c784 563df553ee2e7]"
