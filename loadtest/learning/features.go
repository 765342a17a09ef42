package learning

import (
	"context"
	_ "embed"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/replay"
)

//go:embed rich.yaml
var rich []byte

// late is how a model of Features is behind, as a job of one partition is.
var late = replay.Options{Lag: 25, Batch: 8}

// FeaturesResult is the AUC over the second half of the ratings, each scored before it was learnt.
type FeaturesResult struct {
	Lag    int           `json:"lag"` // ratings
	Batch  int           `json:"batch"`
	Models []FeaturesRow `json:"models"` // the first is that of two features
	Biases float64       `json:"biases"` // of a number for each user and movie, at the same lag
}

// FeaturesRow is a model.
type FeaturesRow struct {
	Name   string    `json:"name"`
	AUC    Estimate  `json:"auc"`
	Gain   Estimate  `json:"gain"` // above the first
	BySeed []float64 `json:"by_seed"`
}

// Features learns the ratings in order of time, as they came, by DeepFM with two features and with more.
func Features(ctx context.Context, recs []rating.Record, seeds int) (*FeaturesResult, error) {
	res := &FeaturesResult{Lag: late.Lag, Batch: late.Batch, Biases: replay.Biases(recs, late)}
	for _, m := range []struct {
		name string
		spec func(seed uint64) (*model.ModelSpec, error)
	}{
		{"DeepFM, user and movie", func(seed uint64) (*model.ModelSpec, error) { return ready("deepfm", seed) }},
		{"DeepFM, genres and history too", func(seed uint64) (*model.ModelSpec, error) { return parsed(rich, seed) }},
	} {
		row := FeaturesRow{Name: m.name}
		for seed := uint64(1); seed <= uint64(seeds); seed++ {
			spec, err := m.spec(seed)
			if err != nil {
				return nil, err
			}
			auc, err := replay.Run(ctx, spec, recs, late)
			if err != nil {
				return nil, err
			}
			row.BySeed = append(row.BySeed, auc)
		}
		row.AUC = NewEstimate(row.BySeed)
		if len(res.Models) > 0 {
			row.Gain = NewEstimate(Differences(row.BySeed, res.Models[0].BySeed))
		}
		res.Models = append(res.Models, row)
	}
	return res, nil
}
