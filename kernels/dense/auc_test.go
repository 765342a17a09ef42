package dense_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/monolith-go/monolith/kernels/dense"
	"github.com/monolith-go/monolith/kernels/gemm"
	"github.com/monolith-go/monolith/kernels/optim"
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

// draw returns the ids of one sample (row numbers, one per field), and whether it was
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

// auc is the chance that a clicked sample has a greater score than another.
func auc[S cmp.Ordered](scores []S, labels []float32) float64 {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[a], scores[b]) })
	var sum, pos float64
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && scores[order[j]] == scores[order[i]] {
			j++
		}
		for _, at := range order[i:j] {
			if labels[at] > 0 {
				sum += float64(i+j-1) / 2 // ties count half
				pos++
			}
		}
		i = j
	}
	return (sum - pos*(pos-1)/2) / (pos * (float64(len(scores)) - pos))
}

func TestAUC(t *testing.T) {
	labels := []float32{0, 1, 0, 1, 1}
	for _, tc := range []struct {
		scores []int
		want   float64
	}{{[]int{1, 2, 1, 3, 4}, 1}, {[]int{4, 1, 5, 2, 3}, 0}, {[]int{1, 1, 1, 1, 1}, .5}, {[]int{2, 1, 4, 3, 5}, .5}} {
		if got := auc(tc.scores, labels); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%v: %g, want %g", tc.scores, got, tc.want)
		}
	}
}

// course trains a model in one mode and scores what it has not seen. The data is always
// the same, the start depends on seed.
type course struct {
	fields, dim, vocab, batch, batches, test int
	hidden                                   []int
	seed                                     uint64
	nudge                                    float64 // each first weight is moved by this part of it, up or down
}

func (c course) learn(t *testing.T, bf bool) (learnt, ideal float64) {
	data := newClicks(c.fields, c.vocab)
	r := rand.New(rand.NewPCG(3, 3+c.seed))
	m := deepFM(t, c.fields, c.dim, c.hidden...)
	var p [][]float32
	for _, l := range m.Tower().Layers() {
		k := draw(r, l.In*l.Out)
		for i := range k {
			k[i] *= float32(math.Sqrt(2 / float64(l.In+l.Out)))
		}
		p = append(p, k, make([]float32, l.Out))
	}
	rows, first := draw(r, c.fields*c.vocab*c.dim), make([]float32, c.fields*c.vocab)
	for i := range rows {
		rows[i] *= 0.03
	}
	if c.nudge > 0 {
		for _, v := range append(p, rows) {
			for i, x := range v {
				v[i] = float32(float64(x) * (1 + c.nudge*float64(r.IntN(2)*2-1)))
			}
		}
	}
	adagrad, err := optim.NewAdagrad(0.003, 1e-6, 0)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for _, prm := range m.Params() {
		sizes = append(sizes, prm.Size())
	}
	u, err := dense.NewUpdater(adagrad, sizes...)
	if err != nil {
		t.Fatal(err)
	}
	rowSlots, firstSlots := make([]float32, len(rows)), make([]float32, len(first))
	adagrad.InitSlots(rowSlots)
	adagrad.InitSlots(firstSlots)

	ws := dense.DeepFMWorkspace{Workspace: dense.Workspace{Pool: partest.New(t, 2), BF16: bf}}
	ids := make([][]int, c.batch)
	for i := range ids {
		ids[i] = make([]int, c.fields)
	}
	d := c.dim
	emb, lin := make([]float32, c.batch*c.fields*d), make([]float32, c.batch*c.fields)
	demb, dl := make([]float32, len(emb)), make([]float32, c.batch)
	labels, grads := make([]float32, c.batch), like(p)
	var ideals []float64
	next := func() {
		ideals = ideals[:0]
		for b := range ids {
			var prob float64
			labels[b], prob = data.draw(ids[b])
			ideals = append(ideals, prob)
			for f, id := range ids[b] {
				at := b*c.fields + f
				copy(emb[at*d:(at+1)*d], rows[id*d:])
				lin[at] = first[id]
			}
		}
	}
	for range c.batches {
		next()
		logits, err := m.Forward(p, emb, lin, c.batch, &ws)
		if err != nil {
			t.Fatal(err)
		}
		dense.SigmoidCrossEntropy(logits, labels, dl)
		if err := m.Backward(p, &ws, dl, grads, demb); err != nil {
			t.Fatal(err)
		}
		if err := u.Apply(p, grads, optim.Step{}, ws.Pool); err != nil {
			t.Fatal(err)
		}
		for b := range ids {
			for f, id := range ids[b] {
				at := b*c.fields + f
				adagrad.Update(rows[id*d:(id+1)*d], rowSlots[id*d:(id+1)*d], demb[at*d:(at+1)*d], optim.Step{})
				adagrad.Update(first[id:id+1], firstSlots[id:id+1], dl[b:b+1], optim.Step{})
			}
		}
	}
	frozen, err := m.Freeze(p, bf, ws.Pool)
	if err != nil {
		t.Fatal(err)
	}
	var scores, truth []float32
	var best []float64
	for len(scores) < c.test {
		next()
		logits, err := frozen.Forward(emb, lin, c.batch, &ws)
		if err != nil {
			t.Fatal(err)
		}
		scores, truth, best = append(scores, logits...), append(truth, labels...), append(best, ideals...)
	}
	return auc(scores, truth), auc(best, truth)
}

var fullCourse = course{fields: 26, dim: 16, vocab: 6, batch: 512, batches: 400, test: 100_000, hidden: []int{1024, 256, 32}}

// bf16 learns what fp32 learns: the same data, the same start, AUC on unseen samples.
func TestBF16LearnsAsWell(t *testing.T) {
	gain := 0.01
	c := fullCourse
	if fp32, _ := gemm.Backends(); raceEnabled || testing.Short() || fp32 != "avx512" {
		c.batches, c.test, c.hidden = 150, 40_000, []int{64, 32}
		gain = 0.0005 // a short course shows less
	}
	f, ideal := c.learn(t, false)
	h, _ := c.learn(t, true)
	c.hidden = nil
	shallow, _ := c.learn(t, false)
	t.Logf("AUC: fp32 %.5f, bf16 %.5f (%+.5f), without hidden layers %.5f, of the true probabilities %.5f", f, h, h-f, shallow, ideal)
	if math.Abs(f-h) > 0.0005 {
		t.Errorf("AUC of bf16 is %.5f, of fp32 %.5f: more than 0.0005 apart", h, f)
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
		f, _ := c.learn(t, false)
		h, _ := c.learn(t, true)
		c.nudge = 0x1p-24
		g, _ := c.learn(t, false)
		c.nudge = 0x1p-9
		k, _ := c.learn(t, false)
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
