package learning

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/replay"
)

//go:embed deepfm.py
var script []byte

// TensorFlowResult is one pass over the ratings in order, from the same first values. Losses and AUC are of what is
// predicted for a step before it is applied.
type TensorFlowResult struct {
	Version string  `json:"version"`
	Batch   int     `json:"batch"`
	Ratings int     `json:"ratings"`
	Window  int     `json:"window"` // ratings of a point of the curves
	Ours    Learnt  `json:"ours"`
	Theirs  Learnt  `json:"theirs"`
	Apart   float64 `json:"apart"`  // the most that a rating's scores differ
	Speeds  []Speed `json:"speeds"` // by size of step, the first being a job's
}

// Speed is ratings a second in steps of one size.
type Speed struct {
	Batch   int     `json:"batch"`
	Ours    float64 `json:"ours"`
	Theirs  float64 `json:"theirs"`
	InGraph float64 `json:"in_graph"` // of TensorFlow where the loop is compiled, too
}

// Speedup is of ours to theirs.
func (s Speed) Speedup() float64 { return s.Ours / s.Theirs }

// Learnt is how a pass went.
type Learnt struct {
	AUC    float64   `json:"auc"`  // of the second half
	Rate   float64   `json:"rate"` // ratings a second
	Losses []float64 `json:"losses"`
}

// denseRate is that of DeepFM's layers. At the ready model's 0.05 units die early, and what the two round differently
// grows until scores are a tenth apart.
const denseRate = 0.01

// window is the ratings of a point of a loss curve.
const window = 10 * batch

// sizes are those of the steps whose speed is measured; 64 is a job's, unless it is told otherwise.
var sizes = []int{64, batch, 1024}

// TensorFlow learns DeepFM here and there, in steps of each size. Losses and AUC are of batch: in smaller steps units
// die again, see denseRate.
func TensorFlow(ctx context.Context, python string, recs []rating.Record) (res *TensorFlowResult, err error) {
	var all []Speed
	for _, size := range sizes {
		r, speed, err := beside(ctx, python, recs, size)
		if err != nil {
			return nil, err
		}
		if all = append(all, speed); size == batch {
			res = r
		}
	}
	res.Speeds = all
	return res, nil
}

// beside is one pass here and one there, in steps of a size.
func beside(ctx context.Context, python string, recs []rating.Record, size int) (res *TensorFlowResult, speed Speed, err error) {
	recs = recs[:len(recs)/size*size]
	spec, err := ready("deepfm", 1)
	if err != nil {
		return nil, speed, err
	}
	spec.GetDenseOptimizer().GetAdagrad().LearningRate = denseRate // rows keep theirs
	l, err := replay.New(spec, size)
	if err != nil {
		return nil, speed, err
	}
	dir, err := os.MkdirTemp("", "monolith-learning-")
	if err != nil {
		return nil, speed, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	by, err := ruleOf(spec)
	if err != nil {
		return nil, speed, err
	}
	if err := writeJob(dir, by, l, recs, size); err != nil {
		return nil, speed, err
	}
	res = &TensorFlowResult{Batch: size, Ratings: len(recs), Window: window}
	ours, err := learn(ctx, l, recs, size)
	if err != nil {
		return nil, speed, err
	}
	theirs, whole, err := learnThere(ctx, python, dir, res)
	if err != nil {
		return nil, speed, err
	}
	if len(theirs.scores) != len(recs) || len(theirs.losses) != len(recs) {
		return nil, speed, fmt.Errorf("TensorFlow answered %d scores and %d losses for %d ratings", len(theirs.scores), len(theirs.losses), len(recs))
	}
	res.Ours, res.Theirs = ours.summed(recs), theirs.summed(recs)
	for i, s := range ours.scores {
		res.Apart = max(res.Apart, math.Abs(float64(s-theirs.scores[i])))
	}
	speed = Speed{size, res.Ours.Rate, res.Theirs.Rate, float64(len(recs)) / whole}
	return res, speed, nil
}

// pass is a run over the ratings.
type pass struct {
	losses, scores []float32 // by rating
	seconds        float64
}

func (p *pass) summed(recs []rating.Record) Learnt {
	half := len(recs) / 2
	scores := make([]float64, 0, half)
	for _, s := range p.scores[half:] {
		scores = append(scores, float64(s))
	}
	l := Learnt{AUC: eval.AUC(scores, liked(recs[half:])), Rate: float64(len(recs)) / p.seconds}
	for at := 0; at+window <= len(p.losses); at += window {
		sum := 0.0
		for _, x := range p.losses[at : at+window] {
			sum += float64(x)
		}
		l.Losses = append(l.Losses, sum/window)
	}
	return l
}

// learn is the pass here. Of a step's losses only the sum is known: each rating counts a part.
func learn(ctx context.Context, l *replay.Learner, recs []rating.Record, size int) (p pass, err error) {
	start := time.Now()
	for at := 0; at < len(recs); at += size {
		if err := ctx.Err(); err != nil {
			return p, err
		}
		res, err := l.Learn(recs[at : at+size]...)
		if err != nil {
			return p, err
		}
		p.scores = append(p.scores, res.Scores[0]...)
		for range size {
			p.losses = append(p.losses, float32(res.Loss/float64(size)))
		}
	}
	p.seconds = time.Since(start).Seconds()
	return p, nil
}

// learnThere is the pass in TensorFlow, and the seconds of one whose loop is compiled, too.
func learnThere(ctx context.Context, python, dir string, res *TensorFlowResult) (p pass, whole float64, err error) {
	cmd := exec.CommandContext(ctx, python, filepath.Join(dir, "deepfm.py"), dir)
	cmd.Env = append(os.Environ(), "TF_CPP_MIN_LOG_LEVEL=3", "CUDA_VISIBLE_DEVICES=")
	cmd.WaitDelay = 5 * time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return p, 0, fmt.Errorf("TensorFlow: %w: %s", err, said.Bytes()[max(0, said.Len()-500):])
	}
	var took struct {
		Stepwise, Whole float64
		Version         string
	}
	if err := json.Unmarshal(out, &took); err != nil {
		return p, 0, fmt.Errorf("TensorFlow printed %q: %w", out, err)
	}
	p.seconds, res.Version = took.Stepwise, took.Version
	var err1, err2 error
	p.losses, err1 = readFloats(filepath.Join(dir, "losses"))
	p.scores, err2 = readFloats(filepath.Join(dir, "scores"))
	return p, took.Whole, errors.Join(err1, err2)
}

// rule is how the script learns.
type rule struct {
	Dim         uint32  `json:"dim"` // of a row
	Rows        float32 `json:"rows_rate"`
	Dense       float32 `json:"dense_rate"`
	Accumulator float32 `json:"initial_accumulator"`
}

// ruleOf is what a model declares. The script knows Adagrad alone, and one rule for all rows.
func ruleOf(spec *model.ModelSpec) (r rule, err error) {
	dense := spec.GetDenseOptimizer().GetAdagrad()
	r = rule{Dim: spec.GetTables()[0].GetDim(), Dense: dense.GetLearningRate(), Accumulator: dense.GetInitialAccumulatorValue()}
	plain := func(a *model.Adagrad, rate float32) bool {
		return proto.Equal(a, &model.Adagrad{LearningRate: rate, InitialAccumulatorValue: r.Accumulator})
	}
	for _, t := range spec.GetTables() {
		for _, s := range t.GetSegments() {
			rows := s.GetOptimizer().GetAdagrad()
			if r.Rows == 0 {
				r.Rows = rows.GetLearningRate()
			}
			if t.GetDim() != r.Dim || !plain(dense, r.Dense) || !plain(rows, r.Rows) {
				return r, fmt.Errorf("table %q: TensorFlow's part learns rows of one width by one plain Adagrad, with the accumulators of the dense variables", t.GetName())
			}
		}
	}
	return r, nil
}

// writeJob writes what the script reads.
func writeJob(dir string, by rule, l *replay.Learner, recs []rating.Record, size int) error {
	type variable struct {
		File  string   `json:"file"`
		Shape []uint32 `json:"shape"`
	}
	job := struct {
		rule
		Batch     int        `json:"batch"`
		Variables []variable `json:"variables"`
	}{rule: by, Batch: size}
	var errs []error
	write := func(name string, v any) {
		data, err := binary.Append(nil, binary.LittleEndian, v)
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	labels := make([]float32, len(recs))
	for i, r := range recs {
		if r.Label() {
			labels[i] = 1
		}
	}
	write("labels", labels)
	for k, name := range []string{"user", "movie"} {
		places, ids := make([]int64, len(recs)), []int64(nil)
		known := map[int64]int64{}
		for i, r := range recs {
			id := []int64{r.User, r.Movie}[k]
			at, ok := known[id]
			if !ok {
				at, ids = int64(len(ids)), append(ids, id)
				known[id] = at
			}
			places[i] = at
		}
		rows, err := l.Begin(name, uint32(1+k), ids)
		errs = append(errs, err)
		write(name+".ids", places)
		write(name+".rows", rows)
	}
	of, values := l.Variables()
	for i, v := range of {
		job.Variables = append(job.Variables, variable{"dense." + strconv.Itoa(i), v.Shape})
		write("dense."+strconv.Itoa(i), values[i])
	}
	text, err := json.Marshal(job)
	return errors.Join(append(errs, err, os.WriteFile(filepath.Join(dir, "job.json"), text, 0o600), os.WriteFile(filepath.Join(dir, "deepfm.py"), script, 0o600))...)
}

func readFloats(path string) ([]float32, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := make([]float32, len(data)/4)
	_, err = binary.Decode(data, binary.LittleEndian, all)
	return all, err
}
