//go:build !race

package runtime

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/planted"
	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

// simulated are ratings by a ready model's rule, of which one in five is against it: no model's AUC is much above 0.8.
func simulated(r *rand.Rand, name string, spec *model.ModelSpec, n int) (all []Sample) {
	for range n {
		x := planted.Draw(r, name)
		if r.IntN(5) == 0 {
			x.Stars = 6.5 - x.Stars
		}
		all = append(all, plantedSample(spec, x))
	}
	return all
}

// readyJob is a ready model that has learnt so many simulated samples, for each stream always the same.
func readyJob(t *testing.T, name string, spec *model.ModelSpec, samples int, stream uint64) *job {
	const batch = 256
	j, r := newJob(t, spec, 1000), rand.New(rand.NewPCG(3, stream))
	lane, b := &Lane{Pool: partest.New(t, 2)}, j.e.NewBatch()
	for range (samples + batch - 1) / batch {
		j.learn(lane, b, j.lookUp(b, simulated(r, name, spec, batch)))
	}
	return j
}

// scores are by task, of what a model server that computes so would answer.
func (j *job) scores(serving model.ModelSpec_Compute, of []Sample) (scores [][]float32) {
	spec := proto.CloneOf(j.e.spec)
	spec.ServingCompute = serving
	other := *j
	other.e = engineOf(j.t, spec, 1, 1000)
	b, lane := other.e.NewBatch(), &Lane{}
	for chunk := range slices.Chunk(of, 1000) {
		var err error
		if scores, err = other.e.Score(lane, b, other.lookUp(b, chunk), scores); err != nil {
			j.t.Fatal(err)
		}
	}
	return scores
}

func aucOf(scores []float32, of []Sample, task int) float64 {
	var wide []float64
	var labels []bool
	for i, s := range of {
		wide, labels = append(wide, float64(scores[i])), append(labels, s.Labels[task] > 0)
	}
	return eval.AUC(wide, labels)
}

const (
	firstStream = 3
	moreStreams = 4
)

// meanApart is the AUC of a task in bfloat16 less that in float32, in the mean over the first stream, of which it is
// first, and so many more.
func meanApart(t *testing.T, name string, spec, half *model.ModelSpec, learnt int, of []Sample, task int, first float64) float64 {
	sum := first
	for stream := uint64(firstStream + 1); stream <= firstStream+moreStreams; stream++ {
		single := readyJob(t, name, spec, learnt, stream).scores(model.ModelSpec_FP32, of)
		trained := readyJob(t, name, half, learnt, stream).scores(model.ModelSpec_BF16, of)
		apart := aucOf(trained[task], of, task) - aucOf(single[task], of, task)
		t.Logf("stream %d: trained and served in bfloat16 %+.5f", stream, apart)
		sum += apart
	}
	return sum / (1 + moreStreams)
}

// Each ready model learns in bfloat16 what it learns in float32, and served in int8 it says what it has learnt: by the
// AUC of samples that it has not seen, from the same start and on the same data. MONOLITH_LONG=1 asks for a million
// samples, and for an AUC within 0.0005; after fewer, models still learn, and chance has its say. It also has it of a model that has
// not ended to learn by then: where one stream is further apart, the mean over five of them decides. That float32 is right is what
// modelspec's TestModelsAgainstTensorFlow and TestModelsAgainstTorch say.
func TestPrecisionsOfReadyModels(t *testing.T) {
	long := os.Getenv("MONOLITH_LONG") != ""
	for name, spec := range readyModels(t) {
		t.Run(name, func(t *testing.T) {
			learnt, asked, within := 20_000, 10_000, 0.01
			switch {
			case long:
				learnt, asked, within = 1_000_000, 100_000, 0.0005
			case name == "din" || name == "dien": // which of several movies counts is to be found out too, and still is
				learnt, within = 40_000, 0.02
			}
			half := proto.CloneOf(spec)
			half.Compute = model.ModelSpec_BF16
			m, err := modelspec.Compile(half)
			if err != nil {
				t.Fatal(err)
			}
			of := simulated(rand.New(rand.NewPCG(4, 4)), name, spec, asked)
			single := readyJob(t, name, spec, learnt, firstStream)
			want := single.scores(model.ModelSpec_FP32, of)
			served := single.scores(model.ModelSpec_INT8, of)
			if products(m.Train, graph.BF16) == 0 { // LR, FM and FFM have none: nothing can differ
				for task := range want {
					if !slices.Equal(bitsOf(served[task]), bitsOf(want[task])) {
						t.Error("a model without products of int8 has other bits")
					}
				}
				return
			}
			trained := readyJob(t, name, half, learnt, firstStream).scores(model.ModelSpec_BF16, of)
			for task := range want {
				auc := aucOf(want[task], of, task)
				off, far := 0.0, 0.0
				for i, x := range want[task] {
					d := math.Abs(float64(served[task][i] - x))
					off, far = off+d/float64(asked), max(far, d)
				}
				h, q := aucOf(trained[task], of, task)-auc, aucOf(served[task], of, task)-auc
				t.Logf("%s: AUC %.5f, trained and served in bfloat16 %+.5f, served in int8 %+.5f, scores then %.5f off in the mean, %.5f at most", m.Tasks[task].Name, auc, h, q, off, far)
				if !(auc > 0.65) {
					t.Errorf("the AUC is %.5f: nothing was learnt, so nothing is compared", auc)
				}
				if long && math.Abs(h) > within {
					h = meanApart(t, name, spec, half, learnt, of, task, h)
				}
				if !(math.Abs(h) <= within) {
					t.Errorf("bfloat16 is %+.5f from float32, more than %g", h, within)
				}
				if !(math.Abs(q) <= 0.0005) || !(off <= 0.01) {
					t.Errorf("int8 is %+.5f from float32 in AUC, and %.5f in the mean score", q, off)
				}
				if off == 0 || slices.Equal(bitsOf(trained[task]), bitsOf(want[task])) {
					t.Error("the same bits in two precisions: one was not computed")
				}
			}
		})
	}
}
