package entry

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// A request has the rows that a record with the same ids is learnt by, and its impression the ids that came and the
// rows that they had.
func TestAVocabularyServesWhatItLearns(t *testing.T) {
	spec := modelspec.MovieRanking()
	for _, table := range spec.Tables {
		table.Dim = 2
	}
	spec.Features[0].Vocabulary = &model.Vocabulary{Size: 100, Divisor: 26}
	spec.Features[1].Vocabulary = &model.Vocabulary{Size: 50}
	m, err := entryOf(spec)
	if err != nil {
		t.Fatal(err)
	}
	user, movie := spec.Features[0], spec.Features[1]
	ids := []int64{27, -5, 1<<60 + 7, 99}
	sc := m.scratches.New().(*scratch)
	if err := sc.load(m, Input{Tensors: tensors{user.GetName(): ints(ids...), movie.GetName(): ints(ids...)}}, 8); err != nil {
		t.Fatal(err)
	}
	if err := sc.batch.Seal(); err != nil {
		t.Fatal(err)
	}
	d, b := input.New(spec, input.Options{}), m.engine.NewBatch()
	for i, id := range ids {
		if err := d.Into(b, fmt.Appendf(nil, `{%q:%d,%q:%d,%q:4}`, user.GetField(), id, movie.GetField(), id, spec.GetLabel().GetField()), input.Position{Offset: int64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Seal(); err != nil {
		t.Fatal(err)
	}
	for i := range ids {
		for f := range spec.Features {
			if got, want := sc.batch.Reads(f, i), b.Reads(f, i); !slices.Equal(got, want) || len(got) == 0 {
				t.Errorf("id %d of %s reads %#x while serving, %#x while training", ids[i], spec.Features[f].GetName(), got, want)
			}
		}
	}

	p := NewImpressions("t", "c", nil, slog.New(slog.DiscardHandler), nil)
	s := &Scorer{Rows: asking(t, 1, &delta.Rows{Table: user.GetTable(), Dim: 2}), MaxBatch: 4}
	in := tensors{user.GetName(): ints(127), movie.GetName(): ints(57)}
	if _, _, err := s.Answer(t.Context(), []*Model{m}, Input{Tensors: in}, p.Want("x", true, "tp", 0)); err != nil {
		t.Fatal(err)
	}
	got := <-p.queue
	var rows []string
	for _, r := range got.Rows {
		rows = append(rows, fmt.Sprintf("%s %d", r.Feature, signature(r.ID)))
	}
	if want := []string{user.GetName() + " 1", user.GetName() + " 27", movie.GetName() + " 7"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
	if got.Inputs[user.GetName()][0] != 27 || got.Inputs[movie.GetName()][0] != 7 {
		t.Errorf("inputs %v", got.Inputs)
	}
}

// An impression has a hashed id as it came, its text beside it, though the rows are those of a vocabulary.
func TestTextsOfAVocabulary(t *testing.T) {
	spec := modelspec.MovieRanking()
	for _, table := range spec.Tables {
		table.Dim = 2
	}
	user, movie := spec.Features[0], spec.Features[1]
	user.Ids, user.Vocabulary = model.Feature_HASH, &model.Vocabulary{Size: 100}
	m, err := entryOf(spec)
	if err != nil {
		t.Fatal(err)
	}
	p := NewImpressions("t", "c", nil, slog.New(slog.DiscardHandler), nil)
	s := &Scorer{Rows: asking(t, 1, &delta.Rows{Table: user.GetTable(), Dim: 2}), MaxBatch: 4}
	in := tensors{user.GetName(): texts("ada"), movie.GetName(): ints(57)}
	if _, _, err := s.Answer(t.Context(), []*Model{m}, Input{Tensors: in}, p.Want("x", true, "tp", 0)); err != nil {
		t.Fatal(err)
	}
	got, hash := <-p.queue, modelspec.HashID([]byte("ada"))
	if id := got.Inputs[user.GetName()][0]; id != signature(modelspec.FID(user.GetSlot(), hash)) {
		t.Errorf("the input is %d, not the hash", id)
	}
	if r := got.Rows[0]; r.Text != "ada" || signature(r.ID) != hash%100 {
		t.Errorf("row %+v", r)
	}
}
