package runtime

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// narrow is movie ranking with tables and layers that cost nothing.
func narrow() *model.ModelSpec {
	spec := modelspec.MovieRanking()
	for _, t := range spec.Tables {
		t.Dim = 4
	}
	spec.Layers = spec.Layers[1:]
	spec.Layers[0].Units = 8
	return spec
}

// wide has tables that several features read, named so that no order of names is that of
// the spec.
func wide() *model.ModelSpec {
	spec := modelspec.MovieRanking()
	proto := spec.Tables[0]
	spec.Tables, spec.Features = nil, nil
	for i, name := range []string{"z", "a", "m"} {
		spec.Tables = append(spec.Tables, &model.Table{Name: name, Dim: []uint32{3, 8, 17}[i], Initializer: proto.Initializer, Optimizer: proto.Optimizer, LearningRate: proto.LearningRate})
	}
	for i, name := range []string{"y", "x", "b", "q", "c"} {
		spec.Features = append(spec.Features, &model.Feature{Name: name, Field: name, Slot: uint32(40 - i), Table: spec.Tables[i%3].Name})
	}
	spec.Layers = spec.Layers[1:]
	return spec
}

func engineOf(t testing.TB, spec *model.ModelSpec, shards, samples int) *Engine {
	t.Helper()
	e, err := New(spec, shards, samples)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// weightsOf are the variables as a new job has them, with biases.
func weightsOf(t testing.TB, e *Engine) *Weights {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	var values [][]float32
	for _, v := range e.Variables() {
		x := modelspec.InitVariable(e.Spec(), v)
		for i := range x {
			x[i] += (rng.Float32() - 0.5) / 4
		}
		values = append(values, x)
	}
	w, err := e.Weights(1, values)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// rowOf is the row of an id; some of its numbers are zeros of either sign.
func rowOf(id int64, dim int) []float32 {
	rng := rand.New(rand.NewPCG(uint64(id), 9))
	row := make([]float32, dim)
	for i := range row {
		switch rng.IntN(8) {
		case 0:
			row[i] = float32(math.Copysign(0, -1))
		case 1:
		default:
			row[i] = rng.Float32() - 0.5
		}
	}
	return row
}

// lookUp fills the blocks of a sealed batch.
func lookUp(b *Batch) {
	for shard := range b.e.shards {
		for _, block := range b.Blocks(shard) {
			for i, id := range block.IDs {
				copy(block.Rows[i*block.Dim:], rowOf(id, block.Dim))
			}
		}
	}
}

func bitsOf(v []float32) []uint32 {
	bits := make([]uint32, len(v))
	for i, x := range v {
		bits[i] = math.Float32bits(x)
	}
	return bits
}

type samples struct {
	ids    [][]int64
	labels []float32
}

// draw makes samples whose ids repeat.
func draw(rng *rand.Rand, spec *model.ModelSpec, n int) (s samples) {
	for range n {
		var ids []int64
		for _, f := range spec.Features {
			ids = append(ids, modelspec.FID(f.Slot, rng.Int64N(int64(1+n/2))*rng.Int64N(1<<40)&modelspec.MaxID))
		}
		s.ids, s.labels = append(s.ids, ids), append(s.labels, float32(rng.IntN(2)))
	}
	return s
}

// one is a sample with one id of each feature and one label.
func one(ids []int64, label float32) (s Sample) {
	for f := range ids {
		s.IDs = append(s.IDs, ids[f:f+1])
	}
	s.Labels = []float32{label}
	return s
}

// columnOf is what each feature has for all samples.
func (s samples) columnOf(f int) (ids []int64) {
	for i := range s.ids {
		ids = append(ids, s.ids[i][f])
	}
	return ids
}

func (s samples) into(t testing.TB, b *Batch) {
	t.Helper()
	b.Reset()
	for i, ids := range s.ids {
		if err := b.Add(one(ids, s.labels[i])); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Seal(); err != nil {
		t.Fatal(err)
	}
}

// The step has the bits of the grouping by maps that it replaced, whatever the number of
// shards, the sizes of batches before it, and the number of features of a table. Where a
// table has one feature, its ids come in the same order too.
func TestAStepHasTheBitsOfAPlainGrouping(t *testing.T) {
	for name, spec := range map[string]*model.ModelSpec{"movies": narrow(), "several features of a table": wide()} {
		for _, shards := range []int{1, 2, 3, 7} {
			t.Run(fmt.Sprintf("%s/shards=%d", name, shards), func(t *testing.T) {
				e := engineOf(t, spec, shards, 200)
				w, b, l := weightsOf(t, e), e.NewBatch(), e.NewLane()
				rng := rand.New(rand.NewPCG(uint64(shards), 1))
				for _, n := range []int{1, 7, 64, 3, 200, 33, 2} {
					s := draw(rng, spec, n)
					s.into(t, b)
					lookUp(b)
					got, err := e.Train(l, b, w)
					if err != nil {
						t.Fatal(err)
					}
					want := newPlain(t, spec, shards)
					want.load(s)
					loss, scores := want.learn(t, w.Values)
					if math.Float64bits(loss) != math.Float64bits(got.Loss) {
						t.Errorf("%d samples: a loss of %v, want %v", n, got.Loss, loss)
					}
					if diff := cmp.Diff(bitsOf(scores), bitsOf(got.Scores[0])); diff != "" {
						t.Errorf("%d samples: scores (-want +got):\n%s", n, diff)
					}
					for i, v := range e.Variables() {
						if !slices.Equal(bitsOf(want.grads[i]), bitsOf(b.Dense[i])) {
							t.Errorf("%d samples: gradients of %s differ", n, v.Name)
						}
					}
					for shard := range shards {
						sameBlocks(t, want.blocks(shard), b.Blocks(shard), name == "movies")
					}
					for f := range spec.Features {
						for i, ids := range s.ids {
							shard, block, at := b.Place(f, i, 0)
							if b.IDs(f, i)[0] != ids[f] || b.Blocks(shard)[block].IDs[at] != ids[f] || modelspec.ShardOf(ids[f], shards) != shard {
								t.Fatalf("feature %d of sample %d is placed at %d of block %d of shard %d", f, i, at, block, shard)
							}
						}
					}
					served, err := e.Score(l, b, w, nil)
					if err != nil || !slices.Equal(bitsOf(served[0]), bitsOf(scores)) {
						t.Errorf("%d samples: served scores differ, %v", n, err)
					}
				}
			})
		}
	}
}

// sameBlocks compares rows and gradients id by id, to the bit.
func sameBlocks(t *testing.T, want, got []Block, ordered bool) {
	t.Helper()
	type row struct {
		Table       string
		ID          int64
		Rows, Grads []uint32
	}
	rows := func(blocks []Block) (all []row, tables []string) {
		for _, b := range blocks {
			tables = append(tables, b.Table)
			for i, id := range b.IDs {
				all = append(all, row{b.Table, id, bitsOf(b.Rows[i*b.Dim : (i+1)*b.Dim]), bitsOf(b.Grads[i*b.Dim : (i+1)*b.Dim])})
			}
		}
		return all, tables
	}
	a, aTables := rows(want)
	b, bTables := rows(got)
	if diff := cmp.Diff(aTables, bTables, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
	if !ordered {
		for _, all := range [][]row{a, b} {
			slices.SortFunc(all, func(x, y row) int { return int(x.ID - y.ID) }) // its slot names its table
		}
	}
	if diff := cmp.Diff(a, b, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// A sample is added whole or not at all, and can be taken back.
func TestSamplesAreAddedWhole(t *testing.T) {
	spec := narrow()
	e := engineOf(t, spec, 2, 3)
	b := e.NewBatch()
	user, movie := modelspec.FID(spec.Features[0].Slot, 7), modelspec.FID(spec.Features[1].Slot, 8)
	for name, ids := range map[string][]int64{
		"too few": {user}, "too many": {user, movie, movie}, "another slot": {user, user}, "bit 63": {user, movie | math.MinInt64}, "no slot": {user, 8},
	} {
		if err := b.Add(one(ids, 1)); err == nil || b.Len() != 0 {
			t.Errorf("%s: %v, %d samples", name, err, b.Len())
		}
	}
	for range 2 {
		if err := b.Add(one([]int64{user, movie}, 1)); err != nil {
			t.Fatal(err)
		}
	}
	mark := b.Len()
	if err := b.Add(one([]int64{user, movie + 1}, 0)); err != nil {
		t.Fatal(err)
	}
	if err := b.Add(one([]int64{user, movie}, 1)); !errors.Is(err, ErrFull) || b.Len() != 3 {
		t.Errorf("a sample more than the engine allows: %v, %d samples", err, b.Len())
	}
	if err := b.Seal(); err != nil {
		t.Fatal(err)
	}
	b.Truncate(mark)
	if b.Len() != 2 || len(b.Labels(0)) != 2 || b.Blocks(0) != nil {
		t.Errorf("%d samples with %d labels are left, sealed %v", b.Len(), len(b.Labels(0)), b.Blocks(0))
	}
	if _, err := e.Score(e.NewLane(), b, weightsOf(t, e), nil); !errors.Is(err, errUnsealed) {
		t.Errorf("a batch that is not sealed: %v", err)
	}
	if err := b.Seal(); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for shard := range 2 {
		for _, block := range b.Blocks(shard) {
			rows += len(block.IDs)
		}
	}
	if rows != 2 {
		t.Errorf("%d rows are read by two samples of one user and one movie", rows)
	}
	b.Reset()
	b.Truncate(2)
	if b.Len() != 0 {
		t.Errorf("%d samples after a reset", b.Len())
	}
}

// Columns make the batch that their samples would, without labels.
func TestColumns(t *testing.T) {
	spec := wide()
	e := engineOf(t, spec, 3, 50)
	s, w, l := draw(rand.New(rand.NewPCG(5, 5)), spec, 50), weightsOf(t, e), e.NewLane()
	rows, columns := e.NewBatch(), e.NewBatch()
	s.into(t, rows)
	for f := range spec.Features {
		ids := s.columnOf(f)
		if err := columns.Column(f, ids, nil); err != nil {
			t.Fatal(err)
		}
		if err := columns.Column(f, ids[:1], nil); !errors.Is(err, ErrFull) {
			t.Errorf("an id more: %v", err)
		}
		if err := columns.Seal(); (err == nil) != (f == len(spec.Features)-1) {
			t.Errorf("%d of %d columns: %v", f+1, len(spec.Features), err)
		}
	}
	lookUp(rows)
	lookUp(columns)
	want, err := e.Score(l, rows, w, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.Score(l, columns, w, [][]float32{{7}})
	if err != nil || got[0][0] != 7 || !slices.Equal(bitsOf(want[0]), bitsOf(got[0][1:])) {
		t.Errorf("scores %v, want 7 and %v; %v", got, want, err)
	}
	if _, err := e.Train(l, columns, w); err == nil || !strings.Contains(err.Error(), "labels") {
		t.Errorf("samples without labels are learnt: %v", err)
	}
	columns.Reset()
	if err := columns.Column(0, []int64{modelspec.FID(spec.Features[1].Slot, 1)}, nil); err == nil {
		t.Error("a column of another slot")
	}
	if _, err := e.Score(l, engineOf(t, spec, 3, 50).NewBatch(), w, nil); err == nil {
		t.Error("another engine's batch is scored")
	}
}

// A batch of nothing reads nothing.
func TestAnEmptyBatch(t *testing.T) {
	e := engineOf(t, narrow(), 2, 4)
	b := e.NewBatch()
	if err := b.Seal(); err != nil || len(b.Blocks(0))+len(b.Blocks(1)) != 0 {
		t.Errorf("%v and %v, %v", b.Blocks(0), b.Blocks(1), err)
	}
	if r, err := e.Train(e.NewLane(), b, weightsOf(t, e)); err != nil || r.Loss != 0 || len(r.Scores[0]) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestWhatIsNoEngine(t *testing.T) {
	for name, tc := range map[string]struct{ shards, samples int }{"no shards": {0, 1}, "no samples": {1, 0}, "more ids than can be": {1, maxIDs}} {
		if _, err := New(narrow(), tc.shards, tc.samples); err == nil {
			t.Errorf("%s: an engine", name)
		}
	}
	if _, err := New(&model.ModelSpec{}, 1, 1); err == nil {
		t.Error("an engine of no model")
	}
	e := engineOf(t, narrow(), 1, 1)
	values := weightsOf(t, e).Values
	if _, err := e.Weights(1, values[1:]); err == nil {
		t.Error("a variable less")
	}
	values[0] = values[0][1:]
	if _, err := e.Weights(1, values); err == nil || !strings.Contains(err.Error(), e.Variables()[0].Name) {
		t.Errorf("a number less: %v", err)
	}
}
