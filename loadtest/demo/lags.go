package demo

import (
	"context"
	"time"

	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/replay"
	"github.com/monolith-go/monolith/loadtest/report"
)

// lagsPatience bounds the replays: those of a large model that do not fit are left out.
const lagsPatience = 20 * time.Second

// lags replays the ratings at several lags, as replays at several rates would have them, and has
// a table of biases learn beside. A step takes up to 8 ratings, the lag is that of its middle.
func (d *driver) lags(ctx context.Context) error {
	recs, err := d.records()
	if err != nil {
		return err
	}
	run, cancel := context.WithTimeout(ctx, lagsPatience)
	defer cancel()
	for _, lag := range []int{5, 25, 50, 200} {
		batch := min(lag, 8)
		auc, err := replay.Run(run, d.spec, recs, replay.Options{Lag: lag - batch/2, Batch: batch})
		if run.Err() != nil {
			d.ui.say("replays of this model take longer than %s: AUC by lag ends at %d", lagsPatience, lag)
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		d.report.AUCByLag = append(d.report.AUCByLag, report.LagPoint{Lag: lag, Online: report.Figure(auc), Baseline: report.Figure(replay.Biases(recs, replay.Options{Lag: lag}))})
	}
	return nil
}

// records are those of the whole source, once more.
func (d *driver) records() ([]rating.Record, error) {
	again, err := OpenSource(d.cfg)
	if err != nil {
		return nil, err
	}
	var all []rating.Rating
	for r, ok := again.Next(); ok; r, ok = again.Next() {
		all = append(all, r)
	}
	return replay.Records(all, again.Catalog()), nil
}
