package scenario

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/report"
)

// Outcome is what became of one rating.
type Outcome struct {
	Index     int // in the source, from 0
	Rating    rating.Rating
	Features  rating.Features // known before the rating
	Score     float64         // of the model, before the rating was produced; NaN: not scored
	Frozen    float64         // of the frozen copy; NaN: not scored
	Best      float64         // true probability; NaN: unknown
	RequestID string          // of the Predict call
	Position  int             // in its batch
	Scheduled time.Time
	Acked     time.Time // when the broker had it on disk
	Partition int32
	Offset    int64
}

// Record is the rating as it went out.
func (o *Outcome) Record() rating.Record {
	return rating.Record{Rating: o.Rating, Features: o.Features}
}

// Scores collects outcomes for the report. It is not safe for concurrent use.
type Scores struct {
	online, frozen, best []float64
	labels               []bool
	index                []int
	outcomes             []Outcome
}

// Add takes the next outcome, in order of index.
func (s *Scores) Add(o Outcome) {
	s.online = append(s.online, o.Score)
	s.frozen = append(s.frozen, o.Frozen)
	s.best = append(s.best, o.Best)
	s.labels = append(s.labels, o.Rating.Label())
	s.index = append(s.index, o.Index)
	s.outcomes = append(s.outcomes, o)
}

// Backfill scores, with the frozen copy, what was rated from index half on while the
// copy was not up yet. It never changes, so a late score is the score it would have
// given then. Ratings that the model scored in one request are asked about under its name once
// more, so that impressions join them as those of a copy that was up; what is left goes in calls
// of at most batch examples. progress (nil: none) hears how many ratings are left.
func (s *Scores) Backfill(ctx context.Context, c *Client, in *Inputs, model, requestPrefix string, half, batch int, progress func(left int)) error {
	left := 0
	var alone []int
	requests := map[string][]int{} // in order of position
	var order []string
	for i, at := range s.index {
		if at < half || !math.IsNaN(s.frozen[i]) {
			continue
		}
		left++
		o := &s.outcomes[i]
		if o.RequestID == "" || o.Position != len(requests[o.RequestID]) {
			alone = append(alone, i)
			continue
		}
		if o.Position == 0 {
			order = append(order, o.RequestID)
		}
		requests[o.RequestID] = append(requests[o.RequestID], i)
	}
	total := left
	ask := func(id string, part []int) error {
		recs := make([]rating.Record, len(part))
		for j, i := range part {
			recs[j] = s.outcomes[i].Record()
		}
		scores, err := c.late(ctx, in, model, id, recs)
		if err != nil {
			return fmt.Errorf("score %d of %d ratings with the frozen copy %s: %w", left, total, model, err)
		}
		for j, i := range part {
			s.frozen[i] = scores[j]
		}
		if left -= len(part); progress != nil {
			progress(left)
		}
		return nil
	}
	for _, id := range order {
		if err := ask(id, requests[id]); err != nil {
			return err
		}
	}
	n := 0
	for part := range slices.Chunk(alone, min(max(batch, 1), MaxBatch)) {
		if err := ask(fmt.Sprintf("%s-frozen-%d", requestPrefix, n), part); err != nil {
			return err
		}
		n++
	}
	return nil
}

// outage is for how long late waits for a model that is not served at the moment, as while
// the log has no leader and its registry no replica.
const outage = time.Minute

// late is Predict of scores that nobody waits for: an outage only defers them.
func (c *Client) late(ctx context.Context, in *Inputs, model, requestID string, recs []rating.Record) ([]float64, error) {
	over := time.Now().Add(outage)
	for pause := retry.New(50*time.Millisecond, time.Second); ; {
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		scores, err := c.Score(call, in, model, requestID, recs)
		cancel()
		switch code := status.Code(err); {
		case code != codes.Unavailable && code != codes.DeadlineExceeded, time.Now().After(over):
			return scores, err
		}
		if pause.Wait(ctx) != nil {
			return nil, err
		}
	}
}

// Fill sets the report's AUC figures and series: progressive AUC of the ratings from
// index half on that have a score, the same ratings for every figure, and the series in
// windows of the given number of ratings.
func (s *Scores) Fill(r *report.Report, half, window int) {
	useFrozen, useBest := false, false
	for i, at := range s.index {
		if at >= half {
			useFrozen = useFrozen || !math.IsNaN(s.frozen[i])
			useBest = useBest || !math.IsNaN(s.best[i])
		}
	}
	var online, frozen, best []float64
	var labels []bool
	for i, at := range s.index {
		if at < half || math.IsNaN(s.online[i]) || useFrozen && math.IsNaN(s.frozen[i]) {
			continue
		}
		online, frozen = append(online, s.online[i]), append(frozen, s.frozen[i])
		best, labels = append(best, s.best[i]), append(labels, s.labels[i])
	}
	r.AUCOnline = report.Figure(eval.AUC(online, labels))
	r.AUCFrozen, r.AUCBest = report.Unknown(), report.Unknown()
	if useFrozen {
		r.AUCFrozen = report.Figure(eval.AUC(frozen, labels))
	}
	if useBest {
		r.AUCBest = report.Figure(eval.AUC(best, labels))
	}
	r.Run.Half = half
	r.Run.Compared = int64(len(labels))
	r.Run.Scored = 0
	for _, v := range s.online {
		if !math.IsNaN(v) {
			r.Run.Scored++
		}
	}

	on, fr, be := eval.Windows(s.online, s.labels, window), eval.Windows(s.frozen, s.labels, window), eval.Windows(s.best, s.labels, window)
	r.Series.AUC = nil
	for i := range on {
		r.Series.AUC = append(r.Series.AUC, report.AUCPoint{
			Ratings: s.index[on[i].End-1] + 1,
			Online:  report.Figure(on[i].AUC),
			Frozen:  report.Figure(fr[i].AUC),
			Best:    report.Figure(be[i].AUC),
		})
	}
	r.Series.FrozenAtRating = 0
	if useFrozen {
		r.Series.FrozenAtRating = half
	}
}
