package runtime

import (
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// bounded reads users by remainder and quotient, and movies modulo 50.
func bounded() *model.ModelSpec {
	spec := narrow()
	spec.Features[0].Vocabulary = &model.Vocabulary{Size: 100, Divisor: 26}
	spec.Features[1].Vocabulary = &model.Vocabulary{Size: 50}
	return spec
}

// A batch by samples, one by columns and one that was appended read the same rows.
func TestIDsOfAVocabulary(t *testing.T) {
	e := engineOf(t, bounded(), 2, 8)
	w, lane := weightsOf(t, e), &Lane{}
	users, movies := []int64{27, 3, 127, 99}, []int64{7, 57, 49, 0}
	fid := func(slot uint32, ids []int64) (all []int64) {
		for _, id := range ids {
			all = append(all, modelspec.FID(slot, id))
		}
		return all
	}
	added, columns, appended := e.NewBatch(), e.NewBatch(), e.NewBatch()
	for i := range users {
		if err := added.Add(one([]int64{modelspec.FID(1, users[i]), modelspec.FID(2, movies[i])}, float32(i%2))); err != nil {
			t.Fatal(err)
		}
	}
	for f, ids := range [][]int64{fid(1, users), fid(2, movies)} {
		if err := columns.Column(f, ids, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := appended.Append(added); err != nil {
		t.Fatal(err)
	}
	var scores [][]float32
	for _, b := range []*Batch{added, columns, appended} {
		for range 2 { // sealed again, it reads no row twice
			if err := b.Seal(); err != nil {
				t.Fatal(err)
			}
		}
		lookUp(b)
		s, err := e.Score(lane, b, w, nil)
		if err != nil {
			t.Fatal(err)
		}
		scores = append(scores, slices.Clone(s[0]))
		for i, want := range [][]int64{{1, 27}, {3, 26}, {1, 27}, {21, 29}} {
			if got := b.Reads(0, i); !slices.Equal(got, fid(1, want)) || !slices.Equal(b.IDs(0, i), fid(1, users[i:i+1])) {
				t.Errorf("user %d reads %#x, and is %#x", users[i], got, b.IDs(0, i))
			}
		}
		if got := b.Reads(1, 1); got[0] != modelspec.FID(2, 7) {
			t.Errorf("movie 57 reads %#x", got)
		}
	}
	for _, s := range scores[1:] {
		if !slices.Equal(bitsOf(s), bitsOf(scores[0])) {
			t.Errorf("scores %v, want %v", s, scores[0])
		}
	}
}

// An id's two rows have the gradient that the row would have that is their sum.
func TestGradientsOfAVocabulary(t *testing.T) {
	e := engineOf(t, bounded(), 2, 8)
	w, lane, added := weightsOf(t, e), &Lane{}, e.NewBatch()
	users, movies := []int64{27, 3, 127, 99}, []int64{7, 57, 49, 0}
	for i := range users {
		if err := added.Add(one([]int64{modelspec.FID(1, users[i]), modelspec.FID(2, movies[i])}, float32(i%2))); err != nil {
			t.Fatal(err)
		}
	}
	if err := added.Seal(); err != nil {
		t.Fatal(err)
	}
	// A plain model whose rows are the sums scores alike.
	plain := engineOf(t, narrow(), 2, 8)
	sums := plain.NewBatch()
	for i := range users {
		if err := sums.Add(one([]int64{modelspec.FID(1, int64(i)), modelspec.FID(2, movies[i]%50)}, float32(i%2))); err != nil {
			t.Fatal(err)
		}
	}
	if err := sums.Seal(); err != nil {
		t.Fatal(err)
	}
	lookUp(sums)
	for i := range users {
		shard, block, at := sums.Place(0, i, 0)
		row := sums.Blocks(shard)[block].Rows[4*at:][:4]
		reads := added.Reads(0, i)
		a, b := rowOf(reads[0], 4), rowOf(reads[1], 4)
		for k := range row {
			row[k] = a[k] + b[k]
		}
	}
	want, err := plain.Train(&Lane{}, sums, weightsOf(t, plain))
	if err != nil {
		t.Fatal(err)
	}
	lookUp(added)
	got, err := e.Train(lane, added, w)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(bitsOf(got.Scores[0]), bitsOf(want.Scores[0])) {
		t.Errorf("scores %v, want %v", got.Scores[0], want.Scores[0])
	}
	gradient := func(b *Batch, sample, k int) []float32 {
		shard, block, at := b.Place(0, sample, k)
		return b.Blocks(shard)[block].Grads[4*at:][:4]
	}
	for _, i := range []int{1, 3} { // of the others the rows are shared
		for k := range 2 {
			if got, want := gradient(added, i, k), gradient(sums, i, 0); !slices.Equal(bitsOf(got), bitsOf(want)) {
				t.Errorf("sample %d, row %d has the gradient %v, want %v", i, k, got, want)
			}
		}
	}
}

// What all samples share is scored once, with the bits that it has by itself.
func TestASharedIDOfAVocabulary(t *testing.T) {
	spec := bounded()
	spec.Outputs = []*model.Output{{Name: "x", Type: model.Output_ADDN, Slices: []string{"movie", "user"}}}
	spec.Layers[0].Inputs = []string{"x"}
	e := engineOf(t, spec, 2, 8)
	w, b := weightsOf(t, e), e.NewBatch()
	for i := range 4 {
		if err := b.Add(one([]int64{modelspec.FID(1, 27), modelspec.FID(2, int64(i))}, 0)); err != nil {
			t.Fatal(err)
		}
	}
	var all [][]float32
	for _, seal := range []func() error{b.Seal, b.SealToScore} {
		if err := seal(); err != nil {
			t.Fatal(err)
		}
		lookUp(b)
		s, err := e.Score(&Lane{}, b, w, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, slices.Clone(s[0]))
	}
	if !slices.Equal(bitsOf(all[0]), bitsOf(all[1])) {
		t.Errorf("%v by samples, %v shared", all[0], all[1])
	}
}

// An engine takes batches of just as many samples as MaxSamples says, also where an id has two rows.
func TestTheMostSamples(t *testing.T) {
	spec := bounded()
	most := MaxSamples(spec)
	if _, err := New(spec, 2, most); most*modelspec.Reads(spec) > maxIDs || err != nil {
		t.Errorf("%d samples: %v", most, err)
	}
	if _, err := New(spec, 2, most+1); err == nil || !strings.Contains(err.Error(), "read 3 rows each") {
		t.Errorf("one more: %v", err)
	}
}
