// Package hostcall tells TensorBoard, every so many steps, what steps have computed: how well they
// predicted, means and norms, and examples of predictions.
//
//	learner ── Learnt ──► window ── Compress ──► queue ──► Run: Decompress, reduce ──► event file
//
// The learner's side runs beside the computation and only copies; the host's side writes. Between them is
// a queue of a few calls, by which a slow disk holds the learner up and no memory grows. A step that runs
// on a device hands the host a [Packed], as here.
package hostcall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sync"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
)

// Config says whether there are host calls, and of what.
type Config struct {
	// Dir is the folder for TensorBoard; each trainer writes into a folder of its own below it. Default:
	// none, and no host calls.
	Dir string
	// Every is the number of steps of a trainer between two calls. Default 500.
	Every int
	// Cached keeps the predictions of all these steps for the call; otherwise it has those of its own step.
	Cached bool
	// Metrics are what is told beside the AUC: scalars, norms, examples. Default: none.
	Metrics []string
}

// What Metrics name.
const (
	Scalars  = "scalars"
	Norms    = "norms"
	Examples = "examples"
)

// DefaultEvery is the original's.
const DefaultEvery = 500

// Register binds the flags.
func (c *Config) Register(fs *pflag.FlagSet) {
	fs.StringVar(&c.Dir, "host-call-dir", c.Dir, "`folder` for TensorBoard: AUC and more of the predictions that steps made, below it a folder for each trainer. Empty: none")
	fs.IntVar(&c.Every, "host-call-every", max(c.Every, DefaultEvery), "`steps` of a trainer between two host calls")
	fs.BoolVar(&c.Cached, "host-call-cached", c.Cached, "tell of the predictions of all steps since the last host call, not of its own step's alone")
	fs.StringSliceVar(&c.Metrics, "host-call-metrics", c.Metrics, "what host calls tell beside the AUC: `scalars,norms,examples`")
}

// Validate complains about what cannot be meant.
func (c *Config) Validate() error {
	var errs []error
	if c.Dir != "" && c.Every < 1 {
		errs = append(errs, fmt.Errorf("trainer: host-call-every %d must be 1 or more", c.Every))
	}
	if c.Dir == "" && (c.Cached || len(c.Metrics) > 0) {
		errs = append(errs, errors.New("trainer: host-call-cached and host-call-metrics need a host-call-dir"))
	}
	for _, m := range c.Metrics {
		if m != Scalars && m != Norms && m != Examples {
			errs = append(errs, fmt.Errorf("trainer: host-call-metrics: %q is none of %s, %s and %s", m, Scalars, Norms, Examples))
		}
	}
	return errors.Join(errs...)
}

// queued is how many calls wait for the host.
const queued = 4

// Calls are the host calls of a trainer.
type Calls struct {
	cfg   Config
	step  func(context.Context) (uint64, error) // that every shard has
	queue chan Packed
	log   *slog.Logger

	mu    sync.Mutex // guards the window
	n     int        // steps of this trainer
	cache cache
	last  int64 // global step of the last call
}

// New makes the host calls of a trainer; without a folder there are none, and nil.
func New(cfg Config, trainer string, step func(context.Context) (uint64, error), log *slog.Logger) *Calls {
	if cfg.Dir == "" {
		return nil
	}
	cfg.Dir = filepath.Join(cfg.Dir, trainer)
	return &Calls{cfg: cfg, step: step, queue: make(chan Packed, queued), log: log}
}

// Step is what a step has computed, as the learner holds it.
type Step struct {
	Tasks     []modelspec.Task
	Variables []modelspec.Variable
	Batch     *runtime.Batch
	Shards    int
	Lines     []input.Line
	Result    runtime.Result
}

// Learnt takes a step that was applied into the window, and hands the host a call if one is due. It waits
// where the host is behind, unless ctx ends: the step is learnt in any case.
func (c *Calls) Learnt(ctx context.Context, s Step) {
	if c == nil || s.Batch.Len() == 0 {
		return
	}
	p, err := c.gather(ctx, s)
	if err != nil {
		c.log.Warn("a host call was not made", "err", err)
	}
	if p == nil {
		return
	}
	select {
	case c.queue <- *p:
	case <-ctx.Done():
	}
}

// gather is the call that is due with this step; nil: none is.
func (c *Calls) gather(ctx context.Context, s Step) (*Packed, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	due := c.n%c.cfg.Every == 0
	if c.n%c.cfg.Every == 1%c.cfg.Every || !c.cfg.Cached {
		c.cache.clear()
	}
	if due || c.cfg.Cached {
		c.cache.add(&s)
	}
	if !due {
		return nil, nil
	}
	if step, err := c.step(ctx); err == nil { // else the shards are on their way, and the next call has theirs
		c.last = int64(step)
	}
	call := NewCall(c.last)
	if err := c.record(call, &s); err != nil {
		return nil, err
	}
	p := call.Compress()
	return &p, nil
}

// add puts a step's samples behind those that are there; how many there are is said last.
func (c *cache) add(s *Step) {
	n := s.Batch.Len()
	c.room(len(s.Tasks), n)
	ones := make([]float32, n)
	for i := range ones {
		ones[i] = 1
	}
	for i := range c.tasks {
		counts := s.Batch.Weights(i)
		if counts == nil {
			counts = ones
		}
		accumulate(c.tasks[i].labels, s.Batch.Labels(i), c.gathered)
		accumulate(c.tasks[i].scores, s.Result.Scores[i][:n], c.gathered)
		accumulate(c.tasks[i].counts, counts, c.gathered)
	}
	for i := range n {
		l := input.Line{Rate: 1}
		if i < len(s.Lines) {
			l = s.Lines[i]
		}
		at := c.gathered + i
		c.buckets[at], c.times[at], c.rates[at] = bucket(l), l.Time, l.Rate
	}
	c.gathered += n
}

// Names of tensors that are more than summaries: the AUC and examples are made of them.
const (
	labelsOf  = "labels_for_auc_calculation"
	scoresOf  = "y_pred_for_auc_calculation"
	countsOf  = "counts_for_auc_calculation"
	bucketsOf = "uid_bucket"
	timesOf   = "req_time"
	ratesOf   = "sample_rate"
)

// of is a task's own name of a tensor or a summary; where there is one task it is the name.
func of(name string, tasks []modelspec.Task, i int) string {
	if len(tasks) == 1 {
		return name
	}
	return name + "/" + tasks[i].Name
}

// record puts what the host is to be told into a call.
func (c *Calls) record(call *Call, s *Step) error {
	n := c.cache.gathered
	all := []Tensor{{Name: bucketsOf, Ints: c.cache.buckets[:n]}, {Name: timesOf, Ints: c.cache.times[:n]}, {Name: ratesOf, Floats: c.cache.rates[:n]}}
	for i, t := range s.Tasks {
		if t.Label == nil || t.Label.GetRaw() {
			continue // nothing is ranked
		}
		p := &c.cache.tasks[i]
		all = append(all, Tensor{Name: of(labelsOf, s.Tasks, i), Floats: p.labels[:n]}, Tensor{Name: of(scoresOf, s.Tasks, i), Floats: p.scores[:n]}, Tensor{Name: of(countsOf, s.Tasks, i), Floats: p.counts[:n]})
	}
	if slices.Contains(c.cfg.Metrics, Scalars) {
		all = append(all, scalars(s)...)
	}
	if slices.Contains(c.cfg.Metrics, Norms) {
		all = append(all, norms(s)...)
	}
	for _, t := range all {
		if err := call.Record(t); err != nil {
			return err
		}
	}
	return nil
}

// scalars are the means of a step, by the rule of their names.
func scalars(s *Step) (all []Tensor) {
	n := s.Batch.Len()
	all = append(all, Tensor{Name: "loss_avg", Floats: []float32{float32(s.Result.Loss / float64(n))}})
	for i := range s.Tasks {
		all = append(all, Tensor{Name: of("label_avg", s.Tasks, i), Floats: s.Batch.Labels(i)}, Tensor{Name: of("prediction_avg", s.Tasks, i), Floats: s.Result.Scores[i][:n]},
			Tensor{Name: of("prediction_max", s.Tasks, i), Floats: s.Result.Scores[i][:n]})
	}
	return all
}

// norms are the Euclidean norms of a step's gradients: of each dense variable, and of the rows of each table.
func norms(s *Step) (all []Tensor) {
	for i, v := range s.Variables {
		all = append(all, Tensor{Name: "gradient_norm/" + v.Name, Floats: []float32{norm(s.Batch.Dense[i])}})
	}
	rows, order := map[string][]float32{}, []string(nil)
	for shard := range s.Shards {
		for _, b := range s.Batch.Blocks(shard) {
			if rows[b.Table] == nil {
				order = append(order, b.Table)
			}
			for i := range b.IDs {
				rows[b.Table] = append(rows[b.Table], norm(b.Grads[i*b.Dim:(i+1)*b.Dim]))
			}
		}
	}
	for _, t := range order {
		all = append(all, Tensor{Name: "row_gradient_norm_avg/" + t, Floats: rows[t]}, Tensor{Name: "row_gradient_norm_max/" + t, Floats: rows[t]})
	}
	return all
}

func norm(v []float32) float32 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return float32(math.Sqrt(sum))
}
