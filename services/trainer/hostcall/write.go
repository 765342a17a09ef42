package hostcall

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/model/eval"
	"github.com/monolith-go/monolith/internal/model/tfevents"
)

// Run writes what calls tell until ctx ends, and what waits then. It is a picture of what was learnt and
// nobody's state: what cannot be written is logged.
func (c *Calls) Run(ctx context.Context) {
	if c == nil {
		return
	}
	var file *tfevents.File
	write := func(p Packed) {
		err := func() (err error) {
			now := time.Now()
			if file == nil {
				if file, err = tfevents.Create(c.cfg.Dir, now); err != nil {
					return err
				}
			}
			return c.write(file, now, &p)
		}()
		if err != nil {
			c.log.Warn("a host call was not written", "dir", c.cfg.Dir, "err", err)
		}
	}
	for ctx.Err() == nil {
		select {
		case p := <-c.queue:
			write(p)
		case <-ctx.Done():
		}
	}
	for {
		select {
		case p := <-c.queue:
			write(p)
			continue
		default:
		}
		if file == nil {
			return
		}
		if err := file.Close(); err != nil {
			c.log.Warn("the file of host calls was not closed", "err", err)
		}
		return
	}
}

// write appends the summaries of a call.
func (c *Calls) write(to *tfevents.File, at time.Time, p *Packed) error {
	step, tensors, err := p.Decompress()
	if err != nil {
		return err
	}
	if err := to.Scalars(at, step, summaries(tensors)); err != nil || !slices.Contains(c.cfg.Metrics, Examples) {
		return err
	}
	return to.Texts(at, step, examples(tensors))
}

// summaries are the scalars that follow from a call's tensors.
func summaries(tensors []Tensor) (all []tfevents.Scalar) {
	for _, t := range tensors {
		suffix, labels := strings.CutPrefix(t.Name, labelsOf)
		switch {
		case labels:
			if auc := aucOf(tensors, suffix); !math.IsNaN(auc) {
				all = append(all, tfevents.Scalar{Tag: "auc" + suffix, Value: auc})
			}
		case len(t.Floats) > 0 && !material(t.Name):
			all = append(all, tfevents.Scalar{Tag: t.Name, Value: reduced(t.Name, t.Floats)})
		}
	}
	return all
}

// material says whether a tensor is one that the AUC and examples are made of, and no summary by itself.
func material(name string) bool {
	name, _, _ = strings.Cut(name, "/")
	return name == labelsOf || name == scoresOf || name == countsOf || name == ratesOf
}

// reduced is a tensor's summary, by what its name contains: its mean, its greatest number, its sum, or
// else its first number.
func reduced(name string, v []float32) float64 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x)
	}
	switch {
	case strings.Contains(name, "_avg"):
		return sum / float64(len(v))
	case strings.Contains(name, "_max"):
		return float64(slices.Max(v))
	case strings.Contains(name, "_sum"):
		return sum
	}
	return float64(v[0])
}

// find is the tensor of that name, empty if there is none.
func find(tensors []Tensor, name string) Tensor {
	if i := slices.IndexFunc(tensors, func(t Tensor) bool { return t.Name == name }); i >= 0 {
		return tensors[i]
	}
	return Tensor{}
}

// looked says which samples are looked at: those of a hundredth of the users, and those of nobody.
func looked(tensors []Tensor) (keep []bool) {
	for _, b := range find(tensors, bucketsOf).Ints {
		keep = append(keep, b < sampled)
	}
	return keep
}

// aucOf is that of the samples that are looked at and that the task learns from; suffix is the task's in names.
func aucOf(tensors []Tensor, suffix string) float64 {
	labels, scores, counts := find(tensors, labelsOf+suffix).Floats, find(tensors, scoresOf+suffix).Floats, find(tensors, countsOf+suffix).Floats
	var s []float64
	var l []bool
	for i, keep := range looked(tensors) {
		if keep && counts[i] != 0 {
			s, l = append(s, float64(scores[i])), append(l, labels[i] > 0.5)
		}
	}
	return eval.AUC(s, l)
}

// examples are the samples that are looked at, as serialized tensors.
func examples(tensors []Tensor) []tfevents.Text {
	keep := looked(tensors)
	all := []tfevents.Text{
		{Tag: "di_example_sample_rates", Value: tfevents.Floats(kept(find(tensors, ratesOf).Floats, keep))},
		{Tag: "di_req_times", Value: tfevents.Ints(kept(find(tensors, timesOf).Ints, keep))},
	}
	for _, t := range tensors {
		if suffix, ok := strings.CutPrefix(t.Name, labelsOf); ok {
			all = append(all, tfevents.Text{Tag: "di_labels" + suffix, Value: tfevents.Floats(kept(t.Floats, keep))},
				tfevents.Text{Tag: "di_preds" + suffix, Value: tfevents.Floats(kept(find(tensors, scoresOf+suffix).Floats, keep))})
		}
	}
	return all
}

func kept[T any](all []T, keep []bool) (some []T) {
	for i, v := range all {
		if keep[i] {
			some = append(some, v)
		}
	}
	return some
}
