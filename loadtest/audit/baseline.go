package audit

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/loadtest/rating"
)

// Baseline is what a Bias reaches on the ratings that a run compares.
type Baseline struct {
	Online float64 // having learnt, before each rating, what the model that scored it had learnt; NaN: not known
	Frozen float64 // having learnt the first half
	// Lag is, over those ratings, how many had been published behind the last one that the
	// model which scored it had learnt.
	LagP50, LagP90 float64
}

// Baselines plays the stream once more for a Bias. A model counts as having learnt a rating from
// the moment on at which the first replica of each of its rows served them, and then as having
// learnt all before it too, so that the baseline rather learns too early than too late.
func Baselines(t *Topic, s *Scores, f Freshnesses, stream, model, frozen string, half int) Baseline {
	kept, _ := join(t, s, stream, model, frozen, half, nil)
	ratings := map[int]rating.Rating{}
	places := map[place]int{}
	for _, rec := range t.Records {
		if i, r, ok := rated(rec, stream); ok {
			ratings[i], places[place{rec.Partition, rec.Offset}] = r, i
		}
	}
	lags := lagsOf(kept, f, places)
	out := Baseline{Online: biased(kept, ratings, func(i int) int { return kept[i].index - lags[i] }), LagP50: math.NaN(), LagP90: math.NaN()}
	out.Frozen = biased(kept, ratings, func(int) int { return half })
	if len(f.Samples) == 0 {
		out.Online = math.NaN() // nobody said when anything was served
		return out
	}
	sorted := make([]float64, len(lags))
	for i, l := range lags {
		sorted[i] = float64(l)
	}
	slices.Sort(sorted)
	out.LagP50, out.LagP90 = eval.Percentile(sorted, 50), eval.Percentile(sorted, 90)
	return out
}

type place struct {
	partition int32
	offset    int64
}

// lagsOf finds the lag of each prediction.
func lagsOf(kept []joined, f Freshnesses, places map[place]int) []int {
	type served struct {
		at    int64 // Unix microseconds
		index int
	}
	var learnt []served
	for _, s := range f.Samples {
		if i, ok := places[place{s.Partition, s.Offset}]; ok {
			learnt = append(learnt, served{s.Time.Add(time.Duration(s.Fast * float64(time.Millisecond))).UnixMicro(), i})
		}
	}
	slices.SortFunc(learnt, func(a, b served) int { return cmp.Compare(a.at, b.at) })
	order := make([]int, len(kept)) // predictions by time
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(kept[a].asked, kept[b].asked) })
	lags := make([]int, len(kept))
	last, next := -1, 0
	for _, i := range order {
		for next < len(learnt) && learnt[next].at <= kept[i].asked {
			last = max(last, learnt[next].index)
			next++
		}
		lags[i] = max(0, kept[i].index-1-last)
	}
	return lags
}

// biased is the AUC of a Bias that has learnt, before it scores kept[i], all ratings below
// upto(i) in their order.
func biased(kept []joined, ratings map[int]rating.Rating, upto func(i int) int) float64 {
	order := make([]int, len(kept))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(kept[a].index, kept[b].index) })
	b := NewBias()
	scores, labels := make([]float64, len(kept)), make([]bool, len(kept))
	next := 0
	for n, i := range order {
		for end := upto(i); next < end; next++ {
			if r, ok := ratings[next]; ok {
				b.Learn(r)
			}
		}
		r := ratings[kept[i].index]
		scores[n], labels[n] = b.Score(r.User, r.Movie), kept[i].liked
	}
	return eval.AUC(scores, labels)
}
