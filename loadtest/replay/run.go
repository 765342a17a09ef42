package replay

import (
	"context"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/loadtest/audit"
	"github.com/monolith-go/monolith/loadtest/rating"
)

// Options say how far a model is behind.
type Options struct {
	Lag    int  // ratings published behind the last one learnt, whenever one is scored
	Batch  int  // ratings of a step; 0: 1. The lag is then Lag to Lag+Batch-1
	Frozen bool // nothing is learnt behind the first half
}

// Run plays the records in order and returns the AUC over their second half, each scored before
// it was learnt.
func Run(ctx context.Context, spec *model.ModelSpec, recs []rating.Record, o Options) (float64, error) {
	batch := max(o.Batch, 1)
	l, err := New(spec, max(batch, 256))
	if err != nil {
		return 0, err
	}
	half := len(recs) / 2
	var scores []float64
	var labels []bool
	next := 0
	for i := range recs {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		for end := i - o.Lag; next+batch <= end && (!o.Frozen || next < half); next += batch {
			if _, err := l.Learn(recs[next : next+batch]...); err != nil {
				return 0, err
			}
		}
		if i < half {
			continue
		}
		s, err := l.Score(recs[i])
		if err != nil {
			return 0, err
		}
		scores, labels = append(scores, float64(s[0])), append(labels, recs[i].Label())
	}
	return eval.AUC(scores, labels), nil
}

// Biases is what a table of biases comes to, which learns rating by rating.
func Biases(recs []rating.Record, o Options) float64 {
	b := audit.NewBias()
	var scores []float64
	var labels []bool
	next, half := 0, len(recs)/2
	for i, r := range recs {
		for ; next < i-o.Lag && (!o.Frozen || next < half); next++ {
			b.Learn(recs[next].Rating)
		}
		if i >= half {
			scores, labels = append(scores, b.Score(r.User, r.Movie)), append(labels, r.Label())
		}
	}
	return eval.AUC(scores, labels)
}

// Records are those of the ratings, which are in order of time.
func Records(ratings []rating.Rating, catalog rating.Catalog) []rating.Record {
	h := rating.NewHistory(catalog)
	out := make([]rating.Record, len(ratings))
	for i, r := range ratings {
		out[i] = h.Add(r)
	}
	return out
}
