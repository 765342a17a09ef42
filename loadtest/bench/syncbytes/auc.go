package syncbytes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/inspect"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/gen"
	"github.com/monolith-go/monolith/loadtest/learning"
)

// AUCCase is DeepFM that learns simulated audiences under several settings, the first of which is what the others are
// held against: whole rows, in each interval.
type AUCCase struct {
	Name     string
	Audience gen.SimulatorConfig // Count are its ratings, of which the second half is scored
	Dim      int                 // of the model's vectors
	Each     int                 // ratings of an interval
	Batch    int                 // ratings of a step
	Seeds    int
	Settings []Setting
	Most     float64 // target: AUC that a goal loses; 0: none
}

// outcome is what became of one audience under one setting.
type outcome struct{ auc, sent, raw float64 }

// run measures all settings, seed by seed.
func (c AUCCase) run(ctx context.Context, r *bench.Runner) error {
	all := make([][]outcome, len(c.Settings))
	for i, s := range c.Settings {
		all[i] = make([]outcome, c.Seeds)
		for seed := range all[i] {
			var err error
			if all[i][seed], err = c.learn(ctx, uint64(seed+1), s); err != nil {
				return err
			}
		}
		if err := c.report(ctx, r, s, all[i], all[0]); err != nil {
			return err
		}
	}
	return nil
}

func (c AUCCase) report(ctx context.Context, r *bench.Runner, s Setting, got, whole []outcome) error {
	auc := func(o []outcome) (v []float64) {
		for _, x := range o {
			v = append(v, x.auc)
		}
		return v
	}
	mean, base := learning.NewEstimate(auc(got)), learning.NewEstimate(auc(whole))
	lost := learning.NewEstimate(learning.Differences(auc(whole), auc(got)))
	sent, raw := 0., 0.
	for _, x := range got {
		sent, raw = sent+x.sent, raw+x.raw
	}
	name := fmt.Sprintf("sync-bytes/%s,dim=%d %s", c.Name, c.Dim, s)
	r.Say("  %s: AUC %.5f, %+.5f ± %.5f lost (95 %% of %d seeds), %.2f times fewer bytes than raw rows", name, mean.Mean, lost.Mean, lost.Half, c.Seeds, raw/sent)
	err := r.Compare(ctx, bench.Comparison{Name: name, Baseline: "whole rows, each interval", Rounds: 1,
		Figures: []bench.Figure{{Name: "AUC", Better: bench.Higher}}, Ours: measured(mean.Mean), Peer: measured(base.Mean)})
	if err != nil {
		return err
	}
	figures := []bench.Figure{{Name: "fewer bytes", Unit: "times", Better: bench.Higher}}
	values := []float64{raw / sent}
	if lost.Half > 0 {
		// A figure is positive: a gain is shown as next to nothing lost.
		most := 0.
		if s.Goal {
			most = 1e4 * c.Most
		}
		figures = append(figures, bench.Figure{Name: "AUC lost", Unit: "0.0001", Better: bench.Lower, Most: most}, bench.Figure{Name: "AUC lost, 95 % of it within", Unit: "0.0001", Better: bench.Lower})
		values = append(values, max(1e4*lost.Mean, 1e-6), 1e4*lost.Half)
	}
	return r.Compare(ctx, bench.Comparison{Name: name, Rounds: 1, Figures: figures, Ours: measured(values...)})
}

// learn plays an audience: in each interval a follower scores ratings by what it has, then the shard learns them.
func (c AUCCase) learn(ctx context.Context, seed uint64, s Setting) (_ outcome, err error) {
	spec, err := deepFM(seed, c.Dim)
	if err != nil {
		return outcome{}, err
	}
	spec = s.declare(spec)
	shard, err := startShard(ctx, spec)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, shard.Close()) }()
	f, err := newFollower(spec, c.Each)
	if err != nil {
		return outcome{}, err
	}
	t, err := newTrainer(spec, shard, c.Batch)
	if err != nil {
		return outcome{}, err
	}
	defer t.close()
	c.Audience.Seed = seed
	records, liked, err := played(c.Audience)
	if err != nil {
		return outcome{}, err
	}
	if _, err := shard.tick(ctx, f.apply); err != nil { // the untrained tower
		return outcome{}, err
	}
	var out outcome
	var scores []float64
	half := len(records) / 2
	for at := 0; at < len(records); at += c.Each {
		part := records[at:min(at+c.Each, len(records))]
		if at >= half {
			got, err := f.score(part)
			if err != nil {
				return outcome{}, err
			}
			for _, x := range got {
				scores = append(scores, float64(x))
			}
		}
		touched, err := t.learn(ctx, part)
		if err != nil {
			return outcome{}, err
		}
		out.raw += float64(touched)
		if _, err := shard.tick(ctx, f.apply); err != nil {
			return outcome{}, err
		}
	}
	out.auc, out.sent = eval.AUC(scores, liked[len(liked)-len(scores):]), float64(shard.bytes)
	return out, nil
}

// deepFM is the ready model, with vectors of so many numbers.
func deepFM(seed uint64, dim int) (*model.ModelSpec, error) {
	var text bytes.Buffer
	if err := inspect.Init("-", "deepfm", &text); err != nil {
		return nil, err
	}
	spec, err := specfile.Parse(text.Bytes())
	if err != nil {
		return nil, err
	}
	spec.Seed = seed
	for _, t := range spec.GetTables() {
		for _, s := range t.GetSegments() {
			if s.GetName() == "v" {
				t.Dim, s.Dim = 0, uint32(dim)
			}
		}
	}
	return modelspec.Normalize(spec), nil
}

// played are an audience's ratings as records of a training topic, in order.
func played(cfg gen.SimulatorConfig) (records []kafka.Record, liked []bool, err error) {
	source, err := gen.NewSimulator(cfg)
	if err != nil {
		return nil, nil, err
	}
	for r, ok := source.Next(); ok; r, ok = source.Next() {
		records = append(records, kafka.Record{Offset: int64(len(records)), Time: time.Unix(r.Timestamp, 0), Value: r.AppendJSON(nil)})
		liked = append(liked, r.Label())
	}
	return records, liked, nil
}
