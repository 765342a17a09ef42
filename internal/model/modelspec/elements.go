package modelspec

import (
	"fmt"
	"math"
	"path"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/rule"
	"github.com/monolith-go/monolith/kernels/optim"
)

// ids checks how a feature's ids are read.
func (c *complaints) ids(what string, f *model.Feature) {
	if model.Feature_Pooling_name[int32(f.GetPooling())] == "" {
		c.add("%s has the unknown pooling %d: use SUM, MEAN or FIRSTN", what, f.GetPooling())
	}
	first := f.GetPooling() == model.Feature_FIRSTN
	if n := f.GetMaxSequenceLength(); first && (n < 1 || n > MaxSequence) {
		c.add("%s has max_sequence_length %d: FIRSTN needs 1 to %d", what, n, MaxSequence)
	} else if !first && n != 0 {
		c.add("%s has max_sequence_length %d and the pooling %v: only FIRSTN has a length", what, n, f.GetPooling())
	}
	if model.Feature_Ids_name[int32(f.GetIds())] == "" {
		c.add("%s has the unknown ids %d: use NUMBER, FID or HASH", what, f.GetIds())
	}
	c.missing(what, f.GetMissing())
	switch n := len(f.GetDefaultIds()); {
	case f.GetMissing() == model.Feature_DEFAULT && (n < 1 || n > MaxDefaults):
		c.add("%s has %d default_ids: missing: DEFAULT needs 1 to %d", what, n, MaxDefaults)
	case f.GetMissing() != model.Feature_DEFAULT && n > 0:
		c.add("%s has default_ids and missing: %v: only DEFAULT takes them", what, f.GetMissing())
	}
	for _, id := range f.GetDefaultIds() {
		if id > MaxID {
			c.add("%s has the default id %d: give at most %d", what, id, int64(MaxID))
			break
		}
	}
}

// cross checks what a crossed feature is made of.
func (c *complaints) cross(what string, spec *model.ModelSpec, f *model.Feature) {
	if n := len(f.GetCross()); n < 2 || n > MaxCrossed {
		c.add("%s crosses %d features: give 2 to %d", what, n, MaxCrossed)
		return
	}
	if f.GetField() != "" || f.GetMissing() != model.Feature_REJECT || f.GetIds() != model.Feature_NUMBER {
		c.add("%s is crossed, so no record has it: take field, missing and ids away", what)
	}
	seen := map[string]bool{}
	for _, name := range f.GetCross() {
		of := Feature(spec, name)
		switch {
		case of == nil:
			c.add("%s crosses %q, which is no feature: declare it, or name one that is", what, name)
		case len(of.GetCross()) > 0:
			c.add("%s crosses %q, which is crossed itself: name the features that it crosses", what, name)
		case seen[name]:
			c.add("%s crosses %q with itself: name it once", what, name)
		}
		seen[name] = true
	}
}

func (c *complaints) missing(what string, m model.Feature_Missing) {
	if model.Feature_Missing_name[int32(m)] == "" {
		c.add("%s has the unknown missing %d: use REJECT, EMPTY or DEFAULT", what, m)
	}
}

// segments checks the names of a table's.
func (c *complaints) segments(what string, t *model.Table) {
	seen := map[string]bool{}
	for i, s := range t.GetSegments() {
		if s.GetName() == "" {
			continue
		}
		c.name(fmt.Sprintf("%s: segment %d", what, i+1), s.GetName())
		if seen[s.GetName()] {
			c.add("%s: two segments are called %q: rename one", what, s.GetName())
		}
		seen[s.GetName()] = true
	}
}

// atMost bounds a list that may be empty.
func (c *complaints) atMost(what string, n, limit int) bool {
	c.path = what
	if n > limit {
		c.add("the model has %d %s: %d are allowed", n, what, limit)
	}
	return n <= limit
}

func (c *complaints) floats(spec *model.ModelSpec) {
	if !c.atMost("floats", len(spec.GetFloats()), MaxFloats) {
		return
	}
	for i, f := range spec.GetFloats() {
		c.at("floats", i)
		what := fmt.Sprintf("float %q", f.GetName())
		c.name(fmt.Sprintf("float %d", i+1), f.GetName())
		if f.GetField() == "" || len(f.GetField()) > MaxName {
			c.add("%s reads a field of %d bytes: give 1 to %d", what, len(f.GetField()), MaxName)
		}
		if f.GetDim() > MaxDim {
			c.add("%s has dim %d: give at most %d", what, f.GetDim(), MaxDim)
		}
		if d := float64(f.GetDefault()); math.IsNaN(d) || math.IsInf(d, 0) {
			c.add("%s has the default %g: give a finite number", what, d)
		} else if d != 0 && f.GetMissing() != model.Feature_DEFAULT {
			c.add("%s has a default and missing: %v: only DEFAULT takes it", what, f.GetMissing())
		}
		c.missing(what, f.GetMissing())
	}
}

// outputs checks their names, which layers share with floats and one another's.
func (c *complaints) outputs(spec *model.ModelSpec) {
	if !c.atMost("outputs", len(spec.GetOutputs()), MaxOutputs) {
		return
	}
	seen := map[string]string{}
	named := func(what, name string) {
		if other := seen[name]; other != "" && other != "layer" {
			c.add("%s %q has the name of an %s: rename one, layers read both by name", what, name, other)
		} else if other != "" {
			c.add("%s %q has the name of a layer: rename one, layers read both by name", what, name)
		}
		seen[name] = what
	}
	for i, o := range spec.GetOutputs() {
		c.at("outputs", i)
		c.name(fmt.Sprintf("output %d", i+1), o.GetName())
		named("output", o.GetName())
		if len(o.GetSlices()) > MaxSlices {
			c.add("output %q has %d slices: %d are allowed", o.GetName(), len(o.GetSlices()), MaxSlices)
		}
	}
	for i, f := range spec.GetFloats() {
		c.at("floats", i)
		named("float", f.GetName())
	}
	for i, l := range spec.GetLayers() {
		if c.at("layers", i); seen[l.GetName()] != "layer" { // twice is said elsewhere
			named("layer", l.GetName())
		}
	}
}

func (c *complaints) tasks(spec *model.ModelSpec) {
	if !c.atMost("tasks", len(spec.GetTasks()), MaxTasks) {
		return
	}
	seen := map[string]bool{}
	for i, t := range spec.GetTasks() {
		c.at("tasks", i)
		c.name(fmt.Sprintf("task %d", i+1), t.GetName())
		c.once(seen, fmt.Sprintf("task %q", t.GetName()), t.GetName())
		c.task(spec, t)
	}
}

func (c *complaints) groups(spec *model.ModelSpec) {
	if !c.atMost("variables", len(spec.GetVariables()), MaxGroups) {
		return
	}
	for i, g := range spec.GetVariables() {
		c.at("variables", i)
		c.name(fmt.Sprintf("group %d of variables", i+1), g.GetMatch())
		if _, err := path.Match(g.GetMatch(), ""); err != nil {
			c.add("the group %q of variables is no pattern: %w", g.GetMatch(), err)
		}
		if g.GetInitializer() != nil {
			if _, err := rule.Initializer(g.GetInitializer()); err != nil {
				c.add("the group %q of variables: %w", g.GetMatch(), err)
			}
		}
		if g.GetOptimizer() != nil || g.GetLearningRate() != nil {
			if o, err := groupOptimizer(spec, g); err != nil {
				c.add("the group %q of variables: %w", g.GetMatch(), err)
			} else if err := optim.CheckDim(o, 2); err != nil {
				c.add("the group %q of variables has an optimizer that cannot take a variable: %w", g.GetMatch(), err)
			}
		}
	}
}

// model checks what is said of the whole model.
func (c *complaints) model(spec *model.ModelSpec) {
	if model.ModelSpec_Reduction_name[int32(spec.GetReduction())] == "" {
		c.add("the reduction %d is unknown: use SUM or MEAN", spec.GetReduction())
	}
	c.path = "compute"
	c.trained("the compute is", spec.GetCompute())
	c.path = "serving_compute"
	if model.ModelSpec_Compute_name[int32(spec.GetServingCompute())] == "" {
		c.add("the serving_compute %d is unknown: use FP32, BF16 or INT8", spec.GetServingCompute())
	}
	c.path = ""
	if n := float64(spec.GetClipNorm()); math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
		c.add("clip_norm is %g: give a finite number, 0 for none", n)
	}
}

// trained checks a compute that holds in training, too.
func (c *complaints) trained(what string, compute model.ModelSpec_Compute) {
	switch compute {
	case model.ModelSpec_FP32, model.ModelSpec_BF16:
	case model.ModelSpec_INT8:
		c.add("%s INT8, which nothing is trained in: use FP32 or BF16, and serving_compute: INT8 for scores", what)
	default:
		c.add("%s %d, which is unknown: use FP32 or BF16", what, compute)
	}
}
