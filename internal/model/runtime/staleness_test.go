package runtime

import (
	"cmp"
	"encoding/csv"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/kernels/optim"
	rowtable "github.com/monolith-go/monolith/kernels/table"
)

// rating is a record of MovieLens, as the demo's model reads it.
type rating struct {
	ids   []int64
	label float32
	at    int64
}

func ratings(t *testing.T) (all []rating) {
	t.Helper()
	f, err := os.Open(oracle.Ratings(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	spec := modelspec.MovieRanking()
	for _, l := range lines[1:] {
		user, err1 := strconv.ParseInt(l[0], 10, 64)
		movie, err2 := strconv.ParseInt(l[1], 10, 64)
		stars, err3 := strconv.ParseFloat(l[2], 64)
		at, err4 := strconv.ParseInt(l[3], 10, 64)
		if err := cmp.Or(err1, err2, err3, err4); err != nil {
			t.Fatal(err)
		}
		all = append(all, rating{[]int64{modelspec.FID(1, user), modelspec.FID(2, movie)}, modelspec.Labelled(spec.GetLabel(), stars), at})
	}
	slices.SortStableFunc(all, func(a, b rating) int { return cmp.Compare(a.at, b.at) })
	return all
}

// job is a training job in one place: a shard's tables and variables, and a partition's two steps.
type job struct {
	t      *testing.T
	e      *Engine
	tables map[string]*rowtable.Table
	values [][]float32
	slots  [][]float32
	opt    optim.Optimizer
}

// movies is the demo's model from that start.
func movies(seed uint64) *model.ModelSpec {
	spec := modelspec.MovieRanking()
	spec.Seed = seed
	return spec
}

func newJob(t *testing.T, spec *model.ModelSpec, samples int) *job {
	j := &job{t: t, e: engineOf(t, spec, 1, samples), tables: map[string]*rowtable.Table{}, opt: modelspec.DenseOptimizer(spec)}
	for _, tab := range spec.GetTables() {
		made, err := modelspec.NewTable(spec, tab.GetName())
		if err != nil {
			t.Fatal(err)
		}
		j.tables[tab.GetName()] = made
	}
	for _, v := range j.e.Variables() {
		j.values = append(j.values, modelspec.InitVariable(spec, v))
		slots := make([]float32, j.opt.SlotSize(v.Size))
		j.opt.InitSlots(slots)
		j.slots = append(j.slots, slots)
	}
	return j
}

// lookUp fills a batch with what a shard answers now.
func (j *job) lookUp(b *Batch, of []Sample) *Weights {
	b.Reset()
	for _, s := range of {
		if err := b.Add(s); err != nil {
			j.t.Fatal(err)
		}
	}
	if err := b.Seal(); err != nil {
		j.t.Fatal(err)
	}
	for _, block := range b.Blocks(0) {
		if _, err := j.tables[block.Table].Lookup(block.IDs, block.Rows, nil); err != nil {
			j.t.Fatal(err)
		}
	}
	var values [][]float32
	for _, v := range j.values {
		values = append(values, slices.Clone(v))
	}
	w, err := j.e.Weights(0, values)
	if err != nil {
		j.t.Fatal(err)
	}
	return w
}

// learn computes a step and applies it.
func (j *job) learn(l *Lane, b *Batch, w *Weights) []float32 {
	res, err := j.e.Train(l, b, w)
	if err != nil {
		j.t.Fatal(err)
	}
	for _, block := range b.Blocks(0) {
		if err := j.tables[block.Table].Optimize(block.IDs, block.Grads, 0); err != nil {
			j.t.Fatal(err)
		}
	}
	for i, g := range b.Dense {
		j.opt.Update(j.values[i], j.slots[i], g, optim.Step{})
	}
	return res.Scores[0]
}

// online learns all ratings in steps whose rows and variables are those from before the last `ahead` steps
// were applied. It returns two AUCs over the second half: that of the trainer's own predictions, and that of
// a model server which has what was applied.
func (j *job) online(all []rating, batch, ahead int) (own, served float64) {
	type looked struct {
		b *Batch
		w *Weights
	}
	var ring []looked
	for range ahead + 1 {
		ring = append(ring, looked{b: j.e.NewBatch()})
	}
	var steps [][]Sample
	for at := 0; at < len(all); at += batch {
		var step []Sample
		for _, r := range all[at:min(at+batch, len(all))] {
			step = append(step, one(r.ids, r.label))
		}
		steps = append(steps, step)
	}
	var trained []float32
	var fresh [][]float32
	lane, server, next := &Lane{}, j.e.NewBatch(), 0
	for k := range steps {
		for ; next < len(steps) && next <= k+ahead; next++ {
			r := &ring[next%len(ring)]
			r.w = j.lookUp(r.b, steps[next])
		}
		var err error
		if fresh, err = j.e.Score(lane, server, j.lookUp(server, steps[k]), fresh); err != nil {
			j.t.Fatal(err)
		}
		r := &ring[k%len(ring)]
		trained = append(trained, j.learn(lane, r.b, r.w)...)
	}
	return secondHalf(trained, all), secondHalf(fresh[0], all)
}

// secondHalf is the AUC of the scores there.
func secondHalf(scores []float32, all []rating) float64 {
	var wide []float64
	var labels []bool
	for i := len(all) / 2; i < len(all); i++ {
		wide, labels = append(wide, float64(scores[i])), append(labels, all[i].label > 0)
	}
	return eval.AUC(wide, labels)
}

// What it costs that a trainer looks a step's rows up before the step before is applied (--pipeline 1): the
// online AUC on real ratings, by five seeds, in the worst case, that each look-up comes before. What counts
// is the model that is served; the trainer's own predictions are later by a batch, besides. services/trainer/adr
// has the figures. MONOLITH_LONG=1 asks for it.
func TestWhatStalenessCosts(t *testing.T) {
	if os.Getenv("MONOLITH_LONG") == "" {
		t.Skip("set MONOLITH_LONG=1 to learn all of MovieLens twenty times")
	}
	all := ratings(t)
	for _, batch := range []int{64, 512} {
		var own, served [3][]float64 // pipeline 0, 1, the difference
		for seed := range uint64(5) {
			var o, s [2]float64
			for ahead := range 2 {
				o[ahead], s[ahead] = newJob(t, movies(seed+1), batch).online(all, batch, ahead)
				own[ahead], served[ahead] = append(own[ahead], o[ahead]), append(served[ahead], s[ahead])
			}
			own[2], served[2] = append(own[2], o[0]-o[1]), append(served[2], s[0]-s[1])
		}
		for what, v := range map[string][3][]float64{"trainer": own, "served": served} {
			zero, _ := interval(v[0])
			one, _ := interval(v[1])
			cost, half := interval(v[2])
			t.Logf("batch %d, %s: AUC %.4f at pipeline 0, %.4f at 1; the difference is %.4f ± %.4f (95 %%)", batch, what, zero, one, cost, half)
			if what == "served" && cost > 0.015 {
				t.Errorf("batch %d: the look-up ahead costs the model that is served %.4f of AUC", batch, cost)
			}
		}
	}
}

// interval is the mean of five, and half the width of its 95 % interval.
func interval(x []float64) (mean, half float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	var squares float64
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	return mean, 2.776 * math.Sqrt(squares/float64(len(x)-1)/float64(len(x)))
}
