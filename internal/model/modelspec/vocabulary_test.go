package modelspec_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// An id is taken modulo the size, a negative one as 0, and has the rows of its remainder and its quotient.
func TestVocabulary(t *testing.T) {
	for _, tc := range []struct {
		size, divisor uint64
		id, taken     int64
		rows          []int64
		most          int64
	}{
		{0, 0, modelspec.MaxID, modelspec.MaxID, []int64{modelspec.MaxID}, 0},
		{10, 0, 9, 9, []int64{9}, 10},
		{10, 0, 10, 0, []int64{0}, 10},
		{10, 0, -1, 0, []int64{0}, 10},
		{10, 0, math.MaxInt64, 7, []int64{7}, 10},
		// The original's sizes: v/rate+1 remainders, rate+1 quotients at most.
		{100, 26, 0, 0, []int64{0, 26}, 30},
		{100, 26, 27, 27, []int64{1, 27}, 30},
		{100, 26, 99, 99, []int64{21, 29}, 30},
		{100, 26, 127, 27, []int64{1, 27}, 30},
		{104, 26, 103, 103, []int64{25, 29}, 30},
		{105, 26, 104, 104, []int64{0, 30}, 31},
	} {
		v := modelspec.VocabularyOf(&model.Feature{Vocabulary: &model.Vocabulary{Size: tc.size, Divisor: tc.divisor}})
		taken, ok := v.Take(tc.id)
		var want []int64
		for _, id := range tc.rows {
			want = append(want, modelspec.FID(7, id))
		}
		got := v.Append(nil, modelspec.FID(7, taken))
		if !ok || taken != tc.taken || !slices.Equal(got, want) || v.Rows() != len(want) || v.Most() != tc.most {
			t.Errorf("%+v: taken %d, %v, rows %#x, %d at most", tc, taken, ok, got, v.Most())
		}
		if tc.size > 0 && !slices.Equal(v.Append(nil, modelspec.FID(7, tc.id)), want) && tc.id >= 0 && tc.id <= modelspec.MaxID {
			t.Errorf("%+v: an id that nobody has taken has other rows", tc)
		}
	}
	for _, id := range []int64{-1, modelspec.MaxID + 1} {
		if _, ok := (modelspec.Vocabulary{}).Take(id); ok {
			t.Errorf("%d is an id without a vocabulary", id)
		}
	}
}

func TestVocabulariesThatAreRefused(t *testing.T) {
	type spec = model.ModelSpec
	for says, change := range map[string]func(*spec){
		"a vocabulary of size 0":               func(s *spec) { s.Features[0].Vocabulary = &model.Vocabulary{} },
		"a vocabulary of size 281474976710657": func(s *spec) { s.Features[0].Vocabulary = &model.Vocabulary{Size: 1<<48 + 1} },
		"with the divisor 5":                   func(s *spec) { s.Features[0].Vocabulary = &model.Vocabulary{Size: 5, Divisor: 5} },
		"the pooling MEAN": func(s *spec) {
			s.Features[0].Vocabulary, s.Features[0].Pooling = &model.Vocabulary{Size: 9, Divisor: 3}, model.Feature_MEAN
		},
		"too, with another vocabulary": func(s *spec) {
			s.Features = append(s.Features, &model.Feature{Name: "seen", Field: "seen", Slot: s.Features[0].Slot, Table: s.Features[0].Table, Vocabulary: &model.Vocabulary{Size: 9}})
		},
	} {
		s := modelspec.MovieRanking()
		change(s)
		if err := modelspec.Validate(s); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}
