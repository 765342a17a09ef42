package syncbytes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/loadtest/bench"
)

// BytesCase is a table that learns for so many intervals.
type BytesCase struct {
	IDs, Dim  int
	Intervals int
	Zipf      bool // IDs draws by Zipf's law an interval; else each row learns in each
	Age       int  // gradients that each row has learnt before
	Setting   Setting
	Least     float64 // target: times fewer bytes than raw rows; 0: none
}

// blockIDs is how many rows one apply has gradients for.
const blockIDs = 4096

// run measures one case: bytes, and the time that the shard took for a publication.
func (c BytesCase) run(ctx context.Context, r *bench.Runner) error {
	sent, touched, took, err := c.learn(ctx)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("sync-bytes/ids=%d,dim=%d,%s,age=%d %s", c.IDs, c.Dim, c.touches(), c.Age, c.Setting)
	raw := float64(touched * 4 * c.Dim)
	err = r.Compare(ctx, bench.Comparison{Name: name, Baseline: "every touched row in float32", Rounds: 1,
		Figures: []bench.Figure{{Name: "bytes", Unit: "MB", Better: bench.Lower}},
		Ours:    measured(float64(sent) / 1e6), Peer: measured(raw / 1e6)})
	if err != nil {
		return err
	}
	return r.Compare(ctx, bench.Comparison{Name: name, Rounds: 1,
		Figures: []bench.Figure{{Name: "fewer bytes", Unit: "times", Better: bench.Higher, Least: c.Least}, {Name: "publication", Unit: "ms", Better: bench.Lower}},
		Ours:    measured(raw/float64(sent), took.Seconds()*1e3/float64(c.Intervals))})
}

// measured is a pass whose work has been done.
func measured(values ...float64) bench.Pass {
	return func(context.Context) ([]float64, error) { return values, nil }
}

func (c BytesCase) touches() string {
	if c.Zipf {
		return "Zipf"
	}
	return "all"
}

// learn is the bytes on the log, the rows that were touched, each once an interval, and how long the shard took
// to publish. Rows are there and followers have them when it begins, and at its end nothing waits.
func (c BytesCase) learn(ctx context.Context) (sent, touched int, took time.Duration, err error) {
	s, err := startShard(ctx, c.Setting.declare(c.spec()))
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	ignore := func(string, *delta.Delta, uint64) error { return nil }
	rng := rand.New(rand.NewPCG(1, uint64(c.IDs)))
	all := make([]int64, c.IDs)
	for i := range all {
		all[i] = int64(i)
	}
	draw := func() []int64 { return all }
	if c.Zipf {
		zipf, place := rand.NewZipf(rng, 1.2, 1, uint64(c.IDs-1)), rng.Perm(c.IDs)
		draw = func() []int64 {
			ids := make([]int64, c.IDs)
			for i := range ids {
				ids[i] = int64(place[zipf.Uint64()])
			}
			slices.Sort(ids)
			return slices.Compact(ids)
		}
	}
	noise := make([]float32, 2*blockIDs*c.Dim)
	for i := range noise {
		noise[i] = gradient * float32(rng.NormFloat64())
	}
	interval := func(ids []int64) (time.Duration, error) {
		for block := range slices.Chunk(ids, blockIDs) {
			g := noise[rng.IntN(blockIDs*c.Dim):][:len(block)*c.Dim]
			if err := s.learn(ctx, &rowwire.ApplyRequest{Tables: []rowwire.TableGrads{{Table: tableName, IDs: block, Grads: g}}}); err != nil {
				return 0, err
			}
		}
		return s.tick(ctx, ignore)
	}
	if _, err := interval(all); err != nil {
		return 0, 0, 0, err
	}
	s.bytes = 0
	for range c.Intervals {
		ids := draw()
		touched += len(ids)
		t, err := interval(ids)
		if err != nil {
			return 0, 0, 0, err
		}
		took += t
	}
	left, err := s.left(ctx)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d rows wait at the end: give a number of intervals that is a multiple of the table's", left)
	}
	return s.bytes, touched, took, err
}

const (
	tableName   = "item"
	gradient    = 0.05 // deviation of one
	rate        = 0.05 // Adagrad's
	accumulator = 0.1  // likewise, at first
	first       = 0.05 // values lie within it at first
)

// spec is a model of one table. Its rows begin as Adagrad leaves them behind as many gradients as c.Age, each drawn
// by itself: with such accumulators, and as far from where they were as steps of these sizes lead.
func (c BytesCase) spec() *model.ModelSpec {
	learnt := float64(c.Age) * gradient * gradient
	far := float32(math.Sqrt(first*first + 3*rate*rate*math.Log(1+learnt/accumulator)))
	adagrad := &model.Optimizer{Kind: &model.Optimizer_Adagrad{Adagrad: &model.Adagrad{LearningRate: rate, InitialAccumulatorValue: float32(accumulator + learnt)}}}
	return &model.ModelSpec{
		Name:     "bench",
		Features: []*model.Feature{{Name: "item", Field: "item", Slot: 1, Table: tableName}},
		Tables: []*model.Table{{Name: tableName, Dim: uint32(c.Dim), Optimizer: adagrad,
			Initializer: &model.Initializer{Kind: &model.Initializer_RandomUniform{RandomUniform: &model.RandomUniform{Min: -far, Max: far}}}}},
		Layers:         []*model.DenseLayer{{Name: "out", Units: 1, Activation: model.Activation_SIGMOID}},
		DenseOptimizer: adagrad,
		Label:          &model.Label{Field: "y", Threshold: 1},
	}
}
