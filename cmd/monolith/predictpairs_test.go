package main

import (
	"context"

	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

// predictPairs asks a model of user and movie for the score of each pair.
func predictPairs(c *scenario.Client, ctx context.Context, model, requestID string, users, movies []int64) ([]float64, error) {
	recs := make([]rating.Record, len(users))
	for i := range recs {
		recs[i].User, recs[i].Movie = users[i], movies[i]
	}
	return c.Score(ctx, nil, model, requestID, recs)
}
