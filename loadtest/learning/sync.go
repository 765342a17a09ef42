package learning

import (
	"context"
	"slices"

	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/loadtest/gen"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/replay"
)

// interval is the time between two chances to synchronise, in ratings.
const interval = 200

// every is after how many ratings the served copy is synchronised, from rarely to after each.
var every = []int{10 * interval, 5 * interval, 2 * interval, interval, 1}

// SyncResult is what a model serves by how often it is synchronised.
type SyncResult struct {
	Ratings  int       `json:"ratings"`  // of an audience, of which the second half is scored
	Interval int       `json:"interval"` // in ratings
	Rows     []SyncRow `json:"rows"`
}

// SyncRow is one frequency.
type SyncRow struct {
	Every  int       `json:"every"` // ratings
	AUC    Estimate  `json:"auc"`
	Gain   Estimate  `json:"gain"` // above the row before, seed by seed
	BySeed []float64 `json:"by_seed"`
}

// Sync learns simulated audiences, a rating a step, as the paper's table of synchronisation intervals is made: the
// first half beforehand, then each rating of the second half is scored by a copy as of the last synchronisation.
func Sync(ctx context.Context, seeds, ratings int) (*SyncResult, error) {
	res := &SyncResult{Ratings: ratings, Interval: interval, Rows: make([]SyncRow, len(every))}
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		audience, err := gen.NewSimulator(gen.SimulatorConfig{Seed: seed, Count: ratings})
		if err != nil {
			return nil, err
		}
		got, err := served(ctx, seed, records(audience), every)
		if err != nil {
			return nil, err
		}
		for i, auc := range got {
			res.Rows[i].BySeed = append(res.Rows[i].BySeed, auc)
		}
	}
	for i := range res.Rows {
		r := &res.Rows[i]
		r.Every, r.AUC = every[i], NewEstimate(r.BySeed)
		if i > 0 {
			r.Gain = NewEstimate(Differences(r.BySeed, res.Rows[i-1].BySeed))
		}
	}
	return res, nil
}

// served is the AUC over the second half for each frequency. One pass learns for all of them: whatever is served
// between two synchronisations is the state at the former.
func served(ctx context.Context, seed uint64, recs []rating.Record, every []int) ([]float64, error) {
	spec, err := ready("deepfm", seed)
	if err != nil {
		return nil, err
	}
	l, err := replay.New(spec, slices.Max(every))
	if err != nil {
		return nil, err
	}
	half := len(recs) / 2
	scores := make([][]float64, len(every))
	for i := range recs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for k, n := range every {
			if i < half || (i-half)%n != 0 {
				continue
			}
			s, err := l.Score(recs[i:min(i+n, len(recs))]...)
			if err != nil {
				return nil, err
			}
			for _, x := range s {
				scores[k] = append(scores[k], float64(x))
			}
		}
		if _, err := l.Learn(recs[i]); err != nil {
			return nil, err
		}
	}
	all := make([]float64, len(every))
	for k := range every {
		all[k] = eval.AUC(scores[k], liked(recs[half:]))
	}
	return all, nil
}

// liked are the labels.
func liked(recs []rating.Record) []bool {
	all := make([]bool, len(recs))
	for i, r := range recs {
		all[i] = r.Label()
	}
	return all
}
