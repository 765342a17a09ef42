package runtime

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/kernels/gemm"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

// clicks draws click-through data that a DeepFM can learn: every id has a first-order
// weight and a hidden vector, neighbouring fields interact in pairs, and a wave over the
// sum of all ids' first hidden numbers is left to the deep part. Popular ids come much more
// often.
type clicks struct {
	r             *rand.Rand
	fields, vocab int
	weight        []float64
	hidden        [][2]float64
}

func newClicks(fields, vocab int) *clicks {
	c := &clicks{r: rand.New(rand.NewPCG(17, 4)), fields: fields, vocab: vocab}
	for range fields * vocab {
		c.weight = append(c.weight, 0.2*c.r.NormFloat64())
		c.hidden = append(c.hidden, [2]float64{c.r.NormFloat64(), c.r.NormFloat64()})
	}
	return c
}

// draw returns the ids of one sample, one per field, and whether it was
// clicked, with the probability that decided it.
func (c *clicks) draw(ids []int) (label float32, p float64) {
	z, wave := -1.0, 0.0
	for f := range c.fields {
		u := c.r.Float64()
		ids[f] = f*c.vocab + int(float64(c.vocab)*u*u*u)
		z += c.weight[ids[f]]
	}
	for f := range c.fields {
		a, b := c.hidden[ids[f]], c.hidden[ids[(f+1)%c.fields]]
		for i := range a {
			z += 0.15 * a[i] * b[i]
		}
		wave += a[0] / math.Sqrt(float64(c.fields))
	}
	z += 1.5 * math.Cos(2*wave)
	p = 1 / (1 + math.Exp(-z))
	if c.r.Float64() < p {
		label = 1
	}
	return label, p
}

// course trains a DeepFM in one precision and scores what it has not seen. The data is always
// the same, the start depends on seed.
type course struct {
	fields, vocab, batch, batches, test int
	units                               string // of the MLP, 1 the last; none: it has no MLP
	seed                                uint64
	nudge                               float64 // each first weight of the MLP is moved by this part of it, up or down
}

func (c course) spec(t *testing.T, compute model.ModelSpec_Compute) *model.ModelSpec {
	t.Helper()
	deep, inputs := "", "[w, pairs]"
	if c.units != "" {
		deep, inputs = "- {name: deep, mlp: {units: ["+c.units+"]}, inputs: [v]}\n", "[w, pairs, deep]"
	}
	spec, err := specfile.Parse([]byte(fmt.Sprintf(`
name: clicks
seed: %d
compute: %v
serving_compute: %v
features: [{name: "C{1..%d}", slot: "{1..%d}", table: c}]
tables: [{name: c, segments: [{name: w, dim: 1, initializer: {zeros: {}}}, {name: v, dim: 16}]}]
outputs: [{name: w, type: ADDN, slices: ["*.w"]}, {name: v, type: STACK, slices: ["*.v"]}]
layers:
- {name: pairs, fm: {}, inputs: [v]}
%s- {name: logit, add: {}, inputs: %s}
tasks: [{logit: logit, label: {field: click, threshold: 1}}]
reduction: MEAN
dense_optimizer: {adagrad: {learning_rate: 0.003, initial_accumulator_value: 0.000001}}
`, c.seed+1, compute, compute, c.fields, c.fields, deep, inputs)))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func (c course) learn(t *testing.T, compute model.ModelSpec_Compute) (learnt, ideal float64) {
	data, r := newClicks(c.fields, c.vocab), rand.New(rand.NewPCG(3, 3+c.seed))
	j := newJob(t, c.spec(t, compute), c.batch)
	if c.nudge > 0 {
		for _, v := range j.values {
			for i, x := range v {
				v[i] = float32(float64(x) * (1 + c.nudge*float64(r.IntN(2)*2-1)))
			}
		}
	}
	var ideals []float64
	var labels []bool
	batch := make([]Sample, c.batch)
	next := func() {
		rows := make([]int, c.fields)
		for i := range batch {
			label, p := data.draw(rows)
			ids := make([][]int64, c.fields)
			for f, row := range rows {
				ids[f] = []int64{modelspec.FID(uint32(f+1), int64(row))}
			}
			batch[i] = Sample{IDs: ids, Labels: []float32{label}}
			ideals, labels = append(ideals, p), append(labels, label > 0)
		}
	}
	lane, b := &Lane{Pool: partest.New(t, 2)}, j.e.NewBatch()
	for range c.batches {
		next()
		j.learn(lane, b, j.lookUp(b, batch))
	}
	ideals, labels = nil, nil
	var scores [][]float32
	for len(labels) < c.test {
		next()
		var err error
		if scores, err = j.e.Score(lane, b, j.lookUp(b, batch), scores); err != nil {
			t.Fatal(err)
		}
	}
	var wide []float64
	for _, s := range scores[0] {
		wide = append(wide, float64(s))
	}
	return eval.AUC(wide, labels), eval.AUC(ideals, labels)
}

var fullCourse = course{fields: 26, vocab: 6, batch: 512, batches: 400, test: 100_000, units: "1024, 256, 32, 1"}

// bf16 learns what fp32 learns: the same data, the same start, AUC on unseen samples. MONOLITH_LONG=1 asks
// for more of them, and the whole tower.
func TestBF16LearnsAsWell(t *testing.T) {
	gain := 0.01
	c := fullCourse
	if fp32, _ := gemm.Backends(); os.Getenv("MONOLITH_LONG") == "" || fp32 != "avx512" {
		c.batches, c.test, c.units = 150, 40_000, "64, 32, 1"
		gain = 0.0005 // a short course shows less
	}
	f, ideal := c.learn(t, model.ModelSpec_FP32)
	h, _ := c.learn(t, model.ModelSpec_BF16)
	c.units = ""
	shallow, _ := c.learn(t, model.ModelSpec_FP32)
	t.Logf("AUC: fp32 %.5f, bf16 %.5f (%+.5f), without hidden layers %.5f, of the true probabilities %.5f", f, h, h-f, shallow, ideal)
	if math.Abs(f-h) > 0.0005 {
		t.Errorf("AUC of bf16 is %.5f, of fp32 %.5f: more than 0.0005 apart", h, f)
	}
	if f == h {
		t.Errorf("AUC %v in both: bf16 was not computed", f)
	}
	if f < shallow+gain {
		t.Errorf("AUC %.5f, %.5f without hidden layers: the tower learns nothing, so nothing is compared", f, shallow)
	}
}

// Two courses end apart because any rounding sends training another way, or because one
// of them learns less. Many starts tell these apart: chance has a mean of zero. Two twins
// in fp32 show what chance does, one whose first weights differ in their last bits, and one
// where they differ by what bfloat16 rounds off at most.
func TestBF16OverManyStarts(t *testing.T) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("MONOLITH_AUC_STARTS"), "0"))
	if err != nil {
		t.Fatal("MONOLITH_AUC_STARTS must be a number of starts, 16 say:", err)
	}
	if n < 3 {
		t.Skip("SKIPPED: takes some three minutes for 16 starts on two idle cores; run it by MONOLITH_AUC_STARTS=16")
	}
	var last, ninth, half []float64
	for i := range n {
		c := fullCourse
		c.seed = uint64(i)
		f, _ := c.learn(t, model.ModelSpec_FP32)
		h, _ := c.learn(t, model.ModelSpec_BF16)
		c.nudge = 0x1p-24
		g, _ := c.learn(t, model.ModelSpec_FP32)
		c.nudge = 0x1p-9
		k, _ := c.learn(t, model.ModelSpec_FP32)
		last, ninth, half = append(last, g-f), append(ninth, k-f), append(half, h-f)
		t.Logf("start %d: fp32 %.5f, last bits nudged %+.5f, ninth bits nudged %+.5f, bf16 %+.5f", i, f, g-f, k-f, h-f)
	}
	say := func(what string, v []float64) (mean, doubt, middle float64) {
		mean, deviation := spread(v)
		doubt, middle = deviation/math.Sqrt(float64(n)), slices.Sorted(slices.Values(v))[n/2]
		t.Logf("AUC less fp32's, %s: mean %+.6f, its standard error %.6f, median %+.6f, scatter of one course %.6f", what, mean, doubt, middle, deviation)
		return mean, doubt, middle
	}
	say("last bits nudged", last)
	say("ninth bits nudged", ninth)
	// Chance has long tails: one course in five goes astray by some thousandths.
	if mean, doubt, middle := say("bf16", half); math.Abs(mean)-2*doubt > 0.0005 || math.Abs(middle) > 0.0005 {
		t.Errorf("the AUC of bf16 is %+.6f from fp32's in the mean, with a standard error of %.6f, and %+.6f in the median: give or take two standard errors it must be within 0.0005", mean, doubt, middle)
	}
}

// spread is the mean and the standard deviation of a sample.
func spread(v []float64) (mean, deviation float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		deviation += (x - mean) * (x - mean) / float64(len(v)-1)
	}
	return mean, math.Sqrt(deviation)
}
