package syncbytes

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/inspect"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/bench/psrole"
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
	f, err := newFollower(spec, max(c.Each, c.Batch))
	if err != nil {
		return outcome{}, err
	}
	t, err := newTrainer(spec, shard, c.Batch)
	if err != nil {
		return outcome{}, err
	}
	c.Audience.Seed = seed
	samples, err := audience(spec, c.Audience)
	if err != nil {
		return outcome{}, err
	}
	if _, err := shard.tick(ctx, f.apply); err != nil { // the untrained tower
		return outcome{}, err
	}
	var out outcome
	var scores []float64
	var labels []bool
	for at := 0; at < len(samples); at += c.Each {
		part := samples[at:min(at+c.Each, len(samples))]
		if at >= len(samples)/2 {
			got, err := f.score(part)
			if err != nil {
				return outcome{}, err
			}
			for i := range part {
				scores, labels = append(scores, float64(got[i])), append(labels, part[i].Labels[0] > 0)
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
	out.auc, out.sent = eval.AUC(scores, labels), float64(shard.bytes)
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

// audience is its ratings as samples of the ready model.
func audience(spec *model.ModelSpec, cfg gen.SimulatorConfig) ([]runtime.Sample, error) {
	source, err := gen.NewSimulator(cfg)
	if err != nil {
		return nil, err
	}
	var out []runtime.Sample
	for r, ok := source.Next(); ok; r, ok = source.Next() {
		of := map[string]int64{"userId": r.User, "movieId": r.Movie}
		s := runtime.Sample{Labels: []float32{0}}
		for _, f := range spec.GetFeatures() {
			s.IDs = append(s.IDs, []int64{modelspec.FID(f.GetSlot(), of[f.GetField()])})
		}
		if r.Label() {
			s.Labels[0] = 1
		}
		out = append(out, s)
	}
	return out, nil
}

// trainer learns samples as the role does: rows and variables of the shard, gradients to it.
type trainer struct {
	shard  *trainingShard
	engine *runtime.Engine
	batch  *runtime.Batch
	lane   *runtime.Lane
	size   int
}

func newTrainer(spec *model.ModelSpec, s *trainingShard, size int) (*trainer, error) {
	e, err := runtime.New(spec, 1, size)
	if err != nil {
		return nil, err
	}
	return &trainer{shard: s, engine: e, batch: e.NewBatch(), lane: &runtime.Lane{}, size: size}, nil
}

// learn takes samples in, step by step, and returns the bytes of the rows that it touched, each once, as float32.
func (t *trainer) learn(ctx context.Context, samples []runtime.Sample) (raw int, err error) {
	type row struct {
		table string
		id    int64
	}
	touched := map[row]struct{}{}
	for at := 0; at < len(samples); at += t.size {
		if err := fill(t.batch, samples[at:min(at+t.size, len(samples))]); err != nil {
			return 0, err
		}
		var w *runtime.Weights
		var g errgroup.Group
		g.Go(func() (err error) { w, err = t.weights(ctx); return err })
		g.Go(func() error { return t.lookup(ctx) })
		if err := g.Wait(); err != nil {
			return 0, err
		}
		if _, err := t.engine.Train(t.lane, t.batch, w); err != nil {
			return 0, err
		}
		r := &rowwire.ApplyRequest{}
		for _, b := range t.batch.Blocks(0) {
			r.Tables = append(r.Tables, rowwire.TableGrads{Table: b.Table, IDs: b.IDs, Grads: b.Grads})
			for _, id := range b.IDs {
				if _, twice := touched[row{b.Table, id}]; !twice {
					touched[row{b.Table, id}] = struct{}{}
					raw += 4 * b.Dim
				}
			}
		}
		for i, v := range t.engine.Variables() {
			r.Dense = append(r.Dense, rowwire.NamedTensor{Name: v.Name, Values: t.batch.Dense[i]})
		}
		if err := t.shard.learn(ctx, r); err != nil {
			return 0, err
		}
	}
	return raw, nil
}

// weights are the tower as it is on the shard.
func (t *trainer) weights(ctx context.Context) (*runtime.Weights, error) {
	r := &rowwire.DenseRequest{Job: psrole.Job}
	for _, v := range t.engine.Variables() {
		r.Names = append(r.Names, v.Name)
	}
	got, err := t.shard.rows.Dense(ctx, r)
	if err != nil {
		return nil, err
	}
	values := make([][]float32, len(got.Tensors))
	for i := range got.Tensors {
		values[i] = got.Tensors[i].Values
	}
	return t.engine.Weights(uint64(t.shard.offset), values)
}

// lookup reads the rows of the batch.
func (t *trainer) lookup(ctx context.Context) error {
	for _, b := range t.batch.Blocks(0) {
		got, err := t.shard.rows.Lookup(ctx, &rowwire.LookupRequest{Model: psrole.Job, Tables: []rowwire.TableIDs{{Table: b.Table, IDs: b.IDs}}})
		if err != nil {
			return err
		}
		copy(b.Rows, got.Values[0])
		got.Done()
	}
	return nil
}
