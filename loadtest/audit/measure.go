package audit

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/loadtest/report"
	"github.com/monolith-go/monolith/projections/registry"
)

// MeasureInputs are what the figures of a run that has come to rest are taken from.
type MeasureInputs struct {
	Log         bus.Log
	Deltas      bus.Deltas
	DeadLetters bus.DeadLetters
	Ratings     *Topic
	Acks        Acks
	Scores      *Scores // nil: no baseline is taken
	UserSlot    uint32  // 0: 1
	MovieSlot   uint32  // 0: 2
}

// Measure sets the figures that only the logs know: how far they reach, events and
// refusals, ratings learnt (the newest checkpoint's offsets less refused records),
// freshness, the baseline. It reads r.Run, which must say bzid, job, model, topic, shards, serving
// shards and start, and for the baseline stream, frozen model and half. Verify does the same again.
func Measure(ctx context.Context, in MeasureInputs, r *report.Report) error {
	h, err := ReadHistory(ctx, in.Log, r.Run.BZID, r.Run.Job, 0)
	if err != nil {
		return err
	}
	if r.Run.SyncSeq, err = in.Deltas.Last(ctx); err != nil {
		return fmt.Errorf("find the end of the deltas: %w", err)
	}
	deltas, err := ReadDeltas(ctx, in.Deltas, r.Run.BZID, r.Run.Job, r.Run.SyncSeq)
	if err != nil {
		return err
	}
	rejected, err := CountRejected(ctx, in.DeadLetters, r.Run.Topic, 0)
	if err != nil {
		return err
	}
	r.Run.LogSeq, r.Events = h.Last, h.Events
	r.Run.LetterSeq, r.Run.TopicEnds = rejected.Last, in.Ratings.Ends
	r.Rejected, r.RatingsRejected = rejected.ByReason, rejected.CSV+rejected.Kafka
	r.RatingsTrained = 0
	if n := len(h.Checkpoints); n > 0 {
		for p, next := range h.Checkpoints[n-1].GetOffsets() {
			r.RatingsTrained += next - in.Ratings.First[p]
		}
		r.RatingsTrained -= rejected.Kafka
	}
	rated := in.Ratings.Rated(max(in.UserSlot, 1), movieSlot(in.MovieSlot), in.Acks)
	f := Freshness(deltas.All, h.Applied, h.Lifetimes, rated, r.Run.Model, max(r.Run.Shards, 1), max(r.Run.ServeShards, 1))
	f.Fill(r, r.Run.Started)
	r.Series.Marks = nil
	for _, m := range h.Marks {
		if s := m.At.Sub(r.Run.Started).Seconds(); s >= 0 {
			r.Series.Marks = append(r.Series.Marks, report.Mark{Second: s, Text: m.Text})
		}
	}
	r.AUCBaseline, r.AUCBaselineFrozen, r.Lag = report.Unknown(), report.Unknown(), report.Lag{P50: report.Unknown(), P90: report.Unknown()}
	if in.Scores != nil {
		b := Baselines(in.Ratings, in.Scores, f, r.Run.Stream, r.Run.Model, r.Run.FrozenModel, r.Run.Half)
		r.AUCBaseline, r.AUCBaselineFrozen = report.Figure(b.Online), report.Figure(b.Frozen)
		r.Lag = report.Lag{P50: report.Figure(b.LagP50), P90: report.Figure(b.LagP90)}
	}
	return nil
}

func movieSlot(s uint32) uint32 {
	if s == 0 {
		return 2
	}
	return s
}

// ReplayEqual folds one namespace of the log from sequence 1 up to each view's sequence,
// and tells whether every hash is the one of the live view; sentence names the first
// that is not.
func ReplayEqual(ctx context.Context, log bus.Log, bzid string, live map[string]report.ViewHash) (equal bool, sentence string, err error) {
	for _, name := range sortedKeys(live) {
		_, hash, err := registry.Replay(ctx, log, name, bzid, live[name].Seq)
		if err != nil {
			return false, "", fmt.Errorf("replay %s: %w", name, err)
		}
		if hash != live[name].Hash {
			return false, fmt.Sprintf("view %s at %d hashes to %s when folded again, live it was %s", name, live[name].Seq, hash, live[name].Hash), nil
		}
	}
	return len(live) > 0, "", nil
}

// Truth is what the training shards held at a saved checkpoint.
func Truth(others checkpoint.Folders, c *training.Checkpoint) (*Rows, error) {
	shards, err := ReadCheckpoint(others, c)
	if err != nil {
		return nil, err
	}
	rows := NewRows()
	for _, s := range shards {
		rows.AddShard(s)
	}
	return rows, nil
}
