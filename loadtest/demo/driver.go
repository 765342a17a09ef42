package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/loadtest/audit"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/report"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

const (
	// sampleSpans is the share of ticks that start a trace.
	sampleSpans = 0.01
	// aucWindow is the number of ratings behind each point of the AUC plot.
	aucWindow = 2000
	// impressionPatience is how long impressions of answered scores are awaited while none comes.
	impressionPatience = 10 * time.Second
	// backfillBatch is how many ratings the frozen copy scores in one call afterwards.
	backfillBatch = 64
)

// learning watches a stream for its half time.
type learning struct {
	half   int
	frozen atomic.Pointer[string] // name of the frozen copy once it is served
}

// driver plays the main job against the public ports and measures it.
type driver struct {
	cfg    Config
	spec   *model.ModelSpec
	inputs *scenario.Inputs // of the model
	frozen string           // name of the copy
	stack  *host.Stack
	source *Source
	ui     *progress

	job      *Job
	report   report.Report
	learning learning
	scores   scenario.Scores
	acks     audit.Acks
	said     *audit.Scores // impressions of the scores
}

// run takes the job from nothing, or from where an earlier run was killed, to its
// report.
func (d *driver) run(ctx context.Context) (_ *report.Report, err error) {
	s := d.stack
	began := time.Now()
	d.acks = audit.Acks{}
	d.learning.half = d.source.Total() / 2
	if d.job, err = OpenJob(ctx, s.Config.Logs); err != nil {
		return nil, err
	}
	d.job.Rows = s.RowKeys()
	defer func() { err = errors.Join(err, d.job.Close()) }()
	if err := d.source.ParkBroken(ctx, d.job.Bus.DeadLetters()); err != nil {
		return nil, err
	}
	addr, err := d.serve(ctx)
	if err != nil {
		return nil, err
	}
	d.report = report.Report{Seed: d.cfg.seed, RatingsRead: d.source.Rows, FirstPredictionSeconds: report.Figure(time.Since(d.cfg.Born).Seconds())}
	d.report.Run = report.Run{Started: time.Now().UTC(), Data: d.source.name, Rate: report.Figure(d.cfg.Rate), BZID: s.Config.Logs.BZID, Job: host.JobName,
		Model: d.spec.GetName(), FrozenModel: d.frozen, Topic: s.Config.Topics.Ratings, Stream: d.source.name, Partitions: int32(s.Config.Partitions),
		Trainers: s.Config.Trainers, Shards: s.Config.Shards, ServeShards: s.Config.Shards, Replicas: s.Config.Replicas,
		SyncMs: report.Figure(float64(s.Config.Sync) / float64(time.Millisecond)), Machine: report.Machine()}
	d.ui.say("first prediction after %.1fs", float64(d.report.FirstPredictionSeconds))

	resumed, err := d.stream(ctx, addr)
	if err != nil {
		return nil, err
	}
	if err := d.settle(ctx, addr, resumed); err != nil {
		return nil, err
	}
	if err := d.lags(ctx); err != nil {
		return nil, err
	}
	d.report.Seconds = report.Figure(time.Since(began).Seconds())
	return &d.report, nil
}

// serve declares the model, has it served, and returns the entry's address once a
// prediction has come back.
func (d *driver) serve(ctx context.Context) (addr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.patience)
	defer cancel()
	if err := d.job.Declare(ctx, d.spec); err != nil {
		return "", fmt.Errorf("declare the model: %w", err)
	}
	if d.cfg.spec != "" && !d.job.Declared(d.spec) {
		return "", fmt.Errorf("%w: %s has a model of another spec than %s already: leave --spec out to go on with it, or name another folder with --dir", flags.ErrUsage, d.stack.Config.Dir, d.cfg.spec)
	}
	entry, err := d.job.Serve(ctx, d.stack.Exports(), SizeOf(d.stack), d.spec, d.ui.say)
	return entry.GetGrpcAddress(), err
}

// stream plays the ratings with load beside them, and says whether an earlier start had
// already played some.
func (d *driver) stream(ctx context.Context, addr string) (resumed bool, err error) {
	s := d.stack
	stored, err := scenario.FindStored(ctx, s.Access, s.Brokers(), s.Config.Topics.Ratings, d.source.name)
	if err != nil {
		return false, err
	}
	if stored.Len() > 0 {
		d.ui.say("%d ratings are in Kafka already, going on behind them", stored.Len())
	}
	if d.job.loaded(d.frozen) {
		d.learning.frozen.Store(&d.frozen)
	}
	writer := kafka.NewWriter(kafka.WriterConfig{Brokers: s.Brokers(), Access: s.Access})
	defer writer.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var side sync.WaitGroup
	defer side.Wait()
	loadCtx, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	var loaded scenario.LoadResult
	var loadErr, freezeErr error
	if d.cfg.load > 0 {
		side.Go(func() {
			loaded, loadErr = scenario.Load(loadCtx, scenario.LoadConfig{Addr: addr, Model: d.spec.GetName(), Rate: d.cfg.load, Seed: d.cfg.seed, Inputs: d.inputs, Example: d.example()})
		})
	}
	freeze := sync.OnceFunc(func() {
		side.Go(func() {
			if freezeErr = d.freeze(ctx); freezeErr != nil {
				cancel()
			}
		})
	})
	if stored.Len() > d.learning.half && d.learning.frozen.Load() == nil {
		freeze()
	}
	started := time.Now()
	done := stored.Len()
	before := done // by an earlier start: they do not count as this one's pace
	d.ui.start("ratings", d.source.Total()-before)
	// Only the ratings behind a sampled tick are traced, from their first step to the
	// rows that are served.
	tracer := s.Tracer("demo", sampleSpans)
	lastSecond := -1
	res, err := scenario.Stream(ctx, scenario.StreamConfig{Source: d.source, Name: d.source.name, Rate: d.cfg.Rate, PredictAddr: addr, Model: d.spec.GetName(), Inputs: d.inputs,
		FrozenModel: func() string {
			if name := d.learning.frozen.Load(); name != nil {
				return *name
			}
			return ""
		},
		Writer: writer, Access: s.Access, Brokers: s.Brokers(), Topic: s.Config.Topics.Ratings, Skip: stored.Has, Tracer: tracer, Log: s.Log,
		OnOutcome: func(o scenario.Outcome) {
			d.scores.Add(o)
			d.acks.Add(o.Partition, o.Offset, o.Acked)
			done++
			if o.Index >= d.learning.half {
				freeze()
			}
			if second := int(time.Since(started).Seconds()); second > lastSecond {
				lastSecond = second
				d.report.Series.ProducedBySec = append(d.report.Series.ProducedBySec, report.CountPoint{Second: float64(second), Count: int64(done)})
				d.ui.set(done-before, "ratings")
			}
		}})
	d.ui.finish()
	stopLoad()
	side.Wait()
	if err := errors.Join(err, freezeErr, loadErr); err != nil {
		return false, err
	}
	if !res.Exhausted {
		return false, fmt.Errorf("stopped after %d of %d ratings; the same command with --dir %s goes on", done, d.source.Total(), s.Config.Dir)
	}
	d.report.Predict, d.report.Series.Predict, d.report.Series.PredictSpread = loaded.Predict, loaded.Seconds, loaded.Spread
	d.ui.say("%d ratings streamed, %d of them scored first; the slowest was acked %s behind its schedule", res.Produced, res.Scored, res.MaxLate.Round(time.Millisecond))
	return stored.Len() > 0, nil
}

// example draws what the load beside the stream asks: users without a history, and movies with
// what the catalog knows of them.
func (d *driver) example() func(*rand.Rand) rating.Record {
	past, now := rating.NewHistory(d.source.Catalog()), time.Now().Unix()
	return func(r *rand.Rand) rating.Record {
		x := rating.Rating{User: 1 + r.Int64N(610), Movie: 1 + r.Int64N(9000), Timestamp: now}
		return rating.Record{Rating: x, Features: past.Of(x.User, x.Movie, x.Timestamp)}
	}
}

// freeze exports the model as it is now and has it loaded once more, without deltas.
func (d *driver) freeze(ctx context.Context) error {
	if d.job.loaded(d.frozen) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.patience)
	defer cancel()
	version, err := d.job.Checkpoint(ctx, "half time")
	if err != nil {
		return fmt.Errorf("checkpoint at half time: %w", err)
	}
	if _, err := d.job.Load(ctx, &model.Load{ModelName: d.frozen, ModelDir: d.stack.Exports(), Version: version, Replicas: 1}); err != nil {
		return fmt.Errorf("load the frozen copy: %w", err)
	}
	if _, err := d.job.AwaitServing(ctx, d.frozen, d.stack.Config.Shards, 1); err != nil {
		return fmt.Errorf("wait until the frozen copy is served: %w", err)
	}
	name := d.frozen
	d.learning.frozen.Store(&name)
	d.ui.say("half time: version %d is frozen and served as %s", version, d.frozen)
	return nil
}

// settle waits until everything is learnt and served, cuts the last checkpoint, and
// takes all figures.
func (d *driver) settle(ctx context.Context, addr string, resumed bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*d.cfg.patience)
	defer cancel()
	s := d.stack
	_, ends, err := s.Access.Bounds(ctx, s.Brokers(), s.Config.Topics.Ratings)
	if err != nil {
		return err
	}
	if err := d.job.AwaitTrained(ctx, s.Config.Shards, ends, func(int64) {}); err != nil {
		return err
	}
	client, err := scenario.Dial(addr)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := d.scores.Backfill(ctx, client, d.inputs, d.frozen, d.source.name, d.learning.half, backfillBatch, nil); err != nil {
		return err
	}
	if err := d.recommend(ctx, client); err != nil {
		return err
	}
	d.report.ModelVersion, err = d.job.Checkpoint(ctx, "end of the stream")
	if err != nil {
		return fmt.Errorf("last checkpoint: %w", err)
	}
	d.ui.say("all learnt, version %d is the last checkpoint; comparing replicas", d.report.ModelVersion)
	if err := d.compare(ctx); err != nil {
		return err
	}
	if err := d.job.settleApplied(ctx, d.spec.GetName(), s.Config.Shards); err != nil {
		return err
	}
	d.scores.Fill(&d.report, d.learning.half, aucWindow)
	ratings, err := audit.ReadTopic(ctx, s.Access, s.Brokers(), s.Config.Topics.Ratings, audit.MaxRatings)
	if err != nil {
		return err
	}
	if err := d.recall(ctx, ratings, resumed); err != nil {
		return err
	}
	if d.report.Hashes, err = d.job.LiveHashes(ctx); err != nil {
		return err
	}
	equal, sentence, err := audit.ReplayEqual(ctx, d.job.Bus.Log(), d.job.Conn.BZID, d.report.Hashes)
	if err != nil {
		return err
	}
	if d.report.ReplayHashEqual = equal; !equal {
		d.ui.say("%s", sentence)
	}
	if err := d.writeAcks(); err != nil {
		return err
	}
	b := d.job.Bus
	return audit.Measure(ctx, audit.MeasureInputs{Log: b.Log(), Deltas: b.Deltas(), DeadLetters: b.DeadLetters(), Ratings: ratings, Acks: d.acks, Scores: d.said}, &d.report)
}

// recall takes the AUC figures from the impressions, so that anybody can take them again:
// a score that was answered without an impression counts as none, and what an earlier start
// of this run scored counts.
func (d *driver) recall(ctx context.Context, ratings *audit.Topic, resumed bool) error {
	best, err := d.bestScores()
	if err != nil {
		return err
	}
	heard := d.report.Run.Scored
	deadline, least := time.Now().Add(impressionPatience), int64(math.MaxInt64)
	for {
		scores, err := audit.ReadScores(ctx, d.stack.Access, d.stack.Brokers(), d.stack.Config.Topics.Predictions)
		if err != nil {
			return err
		}
		a := audit.Learning(ratings, scores, d.source.name, d.spec.GetName(), d.frozen, d.learning.half, best)
		d.said = scores
		if a.Missing < least {
			deadline, least = time.Now().Add(impressionPatience), a.Missing
		}
		if a.Missing == 0 && (resumed || a.Scored >= heard) || time.Now().After(deadline) {
			d.report.AUCOnline, d.report.AUCFrozen, d.report.AUCBest = report.Figure(a.Online), report.Figure(a.Frozen), report.Figure(a.Best)
			d.report.Run.Scored, d.report.Run.Unlogged, d.report.Run.Compared = a.Scored, a.Missing, a.Compared
			if a.Missing > 0 {
				d.ui.say("%d scores left no impression and count as none: impressions are dropped while the topic does not take them, and go with a model server that dies", a.Missing)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// bestScores asks the source once more for the true probabilities; nil when nobody can
// know them.
func (d *driver) bestScores() (func(int) (float64, bool), error) {
	again, err := OpenSource(d.cfg)
	if err != nil {
		return nil, err
	}
	var best []float64
	for {
		if _, more := again.Next(); !more {
			break
		}
		p, known := again.Best()
		if !known {
			return nil, nil
		}
		best = append(best, p)
	}
	return func(i int) (float64, bool) {
		if i >= len(best) {
			return 0, false
		}
		return best[i], true
	}, nil
}

// writeAcks keeps what no log holds: when each write was acknowledged.
func (d *driver) writeAcks() (err error) {
	if err := os.MkdirAll(d.cfg.report, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(d.cfg.report, audit.AckFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return d.acks.Encode(f)
}
