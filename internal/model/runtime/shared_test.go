package runtime

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/planted"
)

// candidates are samples of a ready model that differ in the movie alone, as those of a request about one user
// do, or in what keep says.
func candidates(rng *rand.Rand, spec *model.ModelSpec, n int, keep func(f *model.Feature) bool) (all []Sample) {
	name := "din"
	first := plantedSample(spec, planted.Draw(rng, name))
	for range n {
		s := plantedSample(spec, planted.Draw(rng, name))
		s.Labels = make([]float32, max(1, len(spec.Tasks)))
		for f := range spec.Features {
			if keep(spec.Features[f]) {
				s.IDs[f] = first.IDs[f]
			}
		}
		all = append(all, s)
	}
	return all
}

// scoresOf scores samples, with what they have in common computed for each or once.
func scoresOf(t *testing.T, e *Engine, w *Weights, all []Sample, once bool) (*Batch, [][]float32) {
	t.Helper()
	b, seal := e.NewBatch(), (*Batch).Seal
	if once {
		seal = (*Batch).SealToScore
	}
	for _, s := range all {
		if err := b.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := seal(b); err != nil {
		t.Fatal(err)
	}
	lookUp(b)
	scores, err := e.Score(&Lane{}, b, w, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b, scores
}

// equalOnce compares scores with what is in common computed once and for each, and where rows are found.
func equalOnce(t *testing.T, e *Engine, all []Sample, shares bool) {
	t.Helper()
	w := weightsOf(t, e)
	each, want := scoresOf(t, e, w, all, false)
	once, got := scoresOf(t, e, w, all, true)
	for task := range want {
		if !slices.Equal(bitsOf(got[task]), bitsOf(want[task])) {
			t.Errorf("task %d: %v, want %v", task, got[task], want[task])
		}
	}
	if slices.Contains(each.shared, true) || slices.Contains(once.shared, true) != shares || shares && !each.Shares() {
		t.Errorf("shared: %v and %v, want none and %v", each.shared, once.shared, shares)
	}
	for i, tensor := range e.tensors { // a shared sequence is not copied to every candidate
		rows := 1
		for _, p := range tensor.pieces {
			if !once.shared[p.feature] {
				rows = len(all)
			}
		}
		if in := once.input[i]; in.Shape[0] != rows || len(in.Data)*len(all) != len(each.input[i].Data)*rows {
			t.Errorf("output %q has %d rows of %d floats, want %d", in.Output, in.Shape[0], len(in.Data), rows)
		}
	}
	for f := range e.features {
		for i := range all {
			for k, id := range once.IDs(f, i) {
				shard, block, at := once.Place(f, i, k)
				if got := once.Blocks(shard)[block].IDs[at]; got != id {
					t.Fatalf("feature %d, sample %d: row of %d, want %d", f, i, got, id)
				}
			}
		}
	}
	if _, err := e.Train(&Lane{}, once, w); err == nil {
		t.Error("a batch that is sealed for scores is learnt from")
	}
}

// What the candidates of a request have in common is computed once, with the bits that each by itself has: in
// float32, bfloat16 and int8, whatever is in common.
func TestSharedColumns(t *testing.T) {
	models := readyModels(t)
	models["movies"] = modelspec.MovieRanking()
	for name, spec := range models {
		for _, compute := range []model.ModelSpec_Compute{model.ModelSpec_FP32, model.ModelSpec_BF16, model.ModelSpec_INT8} {
			spec.ServingCompute = compute
			e := engineOf(t, spec, 2, 64)
			for seed := range uint64(6) {
				rng := rand.New(rand.NewPCG(seed, 3))
				for what, keep := range map[string]func(f *model.Feature) bool{
					"user":  func(f *model.Feature) bool { return f.Field != "movieId" },
					"movie": func(f *model.Feature) bool { return f.Field == "movieId" },
					"all":   func(*model.Feature) bool { return true },
				} {
					t.Run(name+"/"+compute.String()+"/"+what, func(t *testing.T) {
						equalOnce(t, e, candidates(rng, spec, []int{2, 7, 64}[seed%3], keep), true)
					})
				}
			}
			equalOnce(t, e, candidates(rand.New(rand.NewPCG(9, 9)), spec, 40, func(*model.Feature) bool { return false }), false)
		}
	}
}

// Lists, sequences, crossed features, features of one slot and floats are shared as well.
func TestSharedLists(t *testing.T) {
	spec := rich()
	e := engineOf(t, spec, 3, 30)
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 5))
		all := drawRich(rng, 2+rng.IntN(28))
		for _, f := range []int{richUser, richHistory, richGenres} {
			for i := range all {
				all[i].IDs[f] = all[0].IDs[f]
			}
		}
		for i := range all {
			all[i].Floats[seed%2] = all[0].Floats[seed%2]
		}
		equalOnce(t, e, all, true)
	}
}

// More samples than are scored at once have the bits that each has among few, whatever they share.
func TestStretches(t *testing.T) {
	const n, few = 2*stretch + 1, 33
	for _, name := range []string{"deepfm", "din", "mmoe", "two-tower"} {
		spec := readyModels(t)[name]
		for _, compute := range []model.ModelSpec_Compute{model.ModelSpec_FP32, model.ModelSpec_BF16, model.ModelSpec_INT8} {
			spec.ServingCompute = compute
			e := engineOf(t, spec, 2, n)
			w := weightsOf(t, e)
			all := candidates(rand.New(rand.NewPCG(8, 1)), spec, n, func(f *model.Feature) bool { return f.Field != "movieId" })
			for _, once := range []bool{false, true} {
				_, got := scoresOf(t, e, w, all, once)
				for from := 0; from < n; from += few {
					_, want := scoresOf(t, e, w, all[from:min(from+few, n)], once)
					for task := range want {
						if !slices.Equal(bitsOf(got[task][from:min(from+few, n)]), bitsOf(want[task])) {
							t.Fatalf("%s, %v, once %v, task %d: the samples from %d on have other scores", name, compute, once, task, from)
						}
					}
				}
			}
		}
	}
}

// A sum of sums would round otherwise: what is added to other features' rows is shared only where it is one row.
func TestSharedSums(t *testing.T) {
	spec := modelspec.MovieRanking()
	spec.Outputs = []*model.Output{{Name: "x", Type: model.Output_ADDN, Slices: []string{"user", "movie"}}}
	e := engineOf(t, spec, 1, 8)
	for _, ids := range [][]int64{{modelspec.FID(2, 3)}, {modelspec.FID(2, 3), modelspec.FID(2, 4), modelspec.FID(2, 5)}, {}} {
		var all []Sample
		for i := range int64(8) {
			all = append(all, Sample{IDs: [][]int64{{modelspec.FID(1, i)}, ids}, Labels: []float32{0}})
		}
		equalOnce(t, e, all, len(ids) == 1)
	}
}

// BenchmarkCandidates seals and scores a thousand candidates of one user, what they have in common for each or
// once.
func BenchmarkCandidates(b *testing.B) {
	models := readyModels(b)
	for name, spec := range map[string]*model.ModelSpec{"movies": modelspec.MovieRanking(), "deepfm": models["deepfm"], "din": models["din"], "dien": models["dien"], "two-tower": models["two-tower"]} {
		e := engineOf(b, spec, 2, 1000)
		all := candidates(rand.New(rand.NewPCG(1, 2)), spec, 1000, func(f *model.Feature) bool { return f.Field != "movieId" })
		for what, seal := range map[string]func(*Batch) error{"each": (*Batch).Seal, "once": (*Batch).SealToScore} {
			b.Run(name+"/"+what, func(b *testing.B) {
				batch, w, l := e.NewBatch(), weightsOf(b, e), &Lane{}
				for _, s := range all {
					if err := batch.Add(s); err != nil {
						b.Fatal(err)
					}
				}
				for b.Loop() {
					if err := seal(batch); err != nil {
						b.Fatal(err)
					}
					if _, err := e.Score(l, batch, w, nil); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
