package modelspec

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/rule"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

// Bounds of a valid spec.
const (
	MaxDim      = 4096
	MaxUnits    = 65536
	MaxFeatures = 1024
	MaxTables   = 1024
	MaxLayers   = 64
	MaxSegments = 64
	MaxDays     = 36500
	MaxName     = 128 // bytes
	MaxFloats   = 1024
	MaxOutputs  = 1024
	MaxSlices   = 4096 // of an output
	MaxInputs   = 1024 // of a layer
	MaxTasks    = 64
	MaxGroups   = 64
	MaxSequence = 4096      // ids that FIRSTN keeps
	MaxDefaults = 64        // ids for a record that has none
	MaxCrossed  = 8         // features of a crossed one
	MaxRules    = 64        // of samples
	MaxSync     = 3_600_000 // milliseconds that a changed row waits
	// MaxVariable bounds the elements of one dense variable.
	MaxVariable = 1 << 26
)

// Validate returns every complaint about spec, joined, or nil. What is valid compiles and can be
// trained and served.
func Validate(spec *model.ModelSpec) error {
	_, err := Compile(spec)
	return err
}

// Complaints are what [Validate] joins, each an *[ElementError] where it is about one element.
func Complaints(spec *model.ModelSpec) []error {
	_, c := compiled(spec)
	return c.all
}

// declared complains about the elements of spec, each by itself.
func declared(spec *model.ModelSpec) *complaints {
	c := &complaints{}
	if spec == nil {
		c.add("no model spec: declare one")
		return c
	}
	c.path = "name"
	c.name("the model", spec.GetName())
	c.features(spec)
	c.tables(spec)
	c.floats(spec)
	c.outputs(spec)
	c.layers(spec)
	c.tasks(spec)
	c.groups(spec)
	c.sampleRules(spec)
	c.path = "dense_optimizer"
	if o, err := rule.Optimizer(spec.GetDenseOptimizer(), spec.GetDenseLearningRate(), 0); err != nil {
		c.add("dense_optimizer: %w", err)
	} else if err := optim.CheckDim(o, 2); err != nil {
		c.add("dense_optimizer: it cannot take a variable: %w", err)
	}
	c.path = "label"
	if spec.GetLabel() != nil || len(spec.GetTasks()) == 0 {
		c.label("the label", spec.GetLabel())
	}
	if len(spec.GetTasks()) == 0 && spec.GetLabel().GetRaw() {
		c.add("the label is raw, and a model without tasks learns a probability: give a threshold, or a task with the loss MSE")
	}
	c.path = ""
	c.model(spec)
	c.unsupported(spec)
	return c
}

func (c *complaints) label(what string, l *model.Label) {
	switch {
	case l.GetField() == "":
		c.add("%s reads no field: set label.field to a key of the training record", what)
	case len(l.GetField()) > MaxName:
		c.add("%s reads a field of %d bytes: %d are allowed", what, len(l.GetField()), MaxName)
	case math.IsNaN(l.GetThreshold()) || math.IsInf(l.GetThreshold(), 0):
		c.add("%s's threshold is %g: give a finite number", strings.TrimSuffix(what, "'s"), l.GetThreshold())
	case l.GetRaw() && l.GetThreshold() != 0:
		c.add("%s is raw and has the threshold %g: take one away", what, l.GetThreshold())
	}
}

// name checks a name that becomes part of subjects, file names and variable names.
func (c *complaints) name(what, name string) {
	switch {
	case name == "":
		c.add("%s has no name: give it one", what)
	case len(name) > MaxName:
		c.add("%s has a name of %d bytes: %d are allowed", what, len(name), MaxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		c.add("%s is called %q: control characters and broken UTF-8 are not allowed in a name", what, name)
	}
}

// once complains about a name that is in seen, and puts it there.
func (c *complaints) once(seen map[string]bool, what, name string) {
	if seen[name] {
		c.add("%s is declared twice: rename one", what)
	}
	seen[name] = true
}

func (c *complaints) count(what string, n, limit int) bool {
	if n == 0 {
		c.add("the model has no %s: declare at least one", what)
	} else if n > limit {
		c.add("the model has %d %s: %d are allowed", n, what, limit)
	}
	return n <= limit
}

func (c *complaints) features(spec *model.ModelSpec) {
	c.path = "features"
	if !c.count("features", len(spec.GetFeatures()), MaxFeatures) {
		return
	}
	names, slots := map[string]bool{}, map[uint32]*model.Feature{}
	for i, f := range spec.GetFeatures() {
		c.at("features", i)
		what := fmt.Sprintf("feature %q", f.GetName())
		c.name(fmt.Sprintf("feature %d", i+1), f.GetName())
		c.once(names, what, f.GetName())
		if len(f.GetCross()) > 0 {
			c.cross(what, spec, f)
		} else if f.GetField() == "" {
			c.add("%s reads no field: set it to a key of the training record", what)
		} else if len(f.GetField()) > MaxName {
			c.add("%s reads a field of %d bytes: %d are allowed", what, len(f.GetField()), MaxName)
		}
		if f.GetSlot() < 1 || f.GetSlot() > MaxSlot {
			c.add("%s has slot %d: give 1 to %d", what, f.GetSlot(), MaxSlot)
		} else if other, taken := slots[f.GetSlot()]; taken && other.GetTable() != f.GetTable() {
			c.add("%s has slot %d, which feature %q has too, of table %q: give it a slot of its own, or the same table", what, f.GetSlot(), other.GetName(), other.GetTable())
		} else if taken && VocabularyOf(other) != VocabularyOf(f) {
			c.add("%s has slot %d, which feature %q has too, with another vocabulary: give it a slot of its own, or the same vocabulary", what, f.GetSlot(), other.GetName())
		} else {
			slots[f.GetSlot()] = f
		}
		c.ids(what, f)
		c.vocabulary(what, f)
		if Table(spec, f.GetTable()) == nil {
			c.add("%s reads table %q, which is not declared: declare it, or name one that is", what, f.GetTable())
		}
	}
}

func (c *complaints) tables(spec *model.ModelSpec) {
	c.path = "tables"
	if !c.count("tables", len(spec.GetTables()), MaxTables) {
		return
	}
	used, seen := map[string]bool{}, map[string]bool{}
	for _, f := range spec.GetFeatures() {
		used[f.GetTable()] = true
	}
	for i, t := range spec.GetTables() {
		c.at("tables", i)
		what := fmt.Sprintf("table %q", t.GetName())
		c.name(fmt.Sprintf("table %d", i+1), t.GetName())
		c.once(seen, what, t.GetName())
		if t.GetDim() < 1 || t.GetDim() > MaxDim {
			c.add("%s has dim %d: give 1 to %d", what, t.GetDim(), MaxDim)
		} else if segments, err := Segments(t, spec.GetSeed()); err != nil {
			c.add("%s: %w", what, err)
		} else if err := holdsARow(t, segments); err != nil {
			c.add("%s: max_bytes is %d, which is too little for a single row: %w", what, t.GetMaxBytes(), err)
		}
		c.segments(what, t)
		if _, err := Filter(t, spec.GetSeed()); err != nil {
			c.add("%s: %w", what, err)
		}
		if _, err := ExpiryOf(t); err != nil {
			c.add("%s: %w", what, err)
		}
		if ms := t.GetSync().GetIntervalMs(); ms > MaxSync {
			c.add("%s: sync: interval_ms is %d: give at most %d, an hour, or 0 for the shard's own interval", what, ms, MaxSync)
		}
		if tol := t.GetSync().GetTolerance(); !(tol >= 0 && tol <= 1) {
			c.add("%s: sync: tolerance is %v: give 0 to 1, a share of a row's length", what, tol)
		}
		if !used[t.GetName()] {
			c.add("%s is read by no feature: remove it, or name it in one", what)
		}
	}
}

// holdsARow complains about a limit of memory that even an empty table exceeds.
func holdsARow(t *model.Table, segments []Segment) error {
	if t.GetMaxBytes() == 0 || t.GetName() == "" {
		return nil
	}
	cfg := table.Config{Name: t.GetName(), MaxBytes: int64(min(t.GetMaxBytes(), math.MaxInt64))}
	for _, s := range segments {
		cfg.Segments = append(cfg.Segments, table.Segment(s))
	}
	empty, err := table.New(cfg)
	if err != nil {
		return err
	}
	return empty.Room([]int64{1})
}

func (c *complaints) layers(spec *model.ModelSpec) {
	layers := spec.GetLayers()
	c.path = "layers"
	if !c.count("layers", len(layers), MaxLayers) || len(layers) == 0 {
		return
	}
	seen := map[string]bool{}
	for i, l := range layers {
		c.at("layers", i)
		what := fmt.Sprintf("layer %q", l.GetName())
		c.name(fmt.Sprintf("layer %d", i+1), l.GetName())
		c.once(seen, what, l.GetName())
		if l.GetKind() == nil {
			if l.GetUnits() < 1 || l.GetUnits() > MaxUnits {
				c.add("%s has %d units: give 1 to %d", what, l.GetUnits(), MaxUnits)
			}
		}
		if model.Activation_name[int32(l.GetActivation())] == "" {
			c.add("%s has the unknown activation %d: use one of spec.proto", what, l.GetActivation())
		}
		if len(l.GetInputs()) > MaxInputs {
			c.add("%s has %d inputs: %d are allowed", what, len(l.GetInputs()), MaxInputs)
		}
		c.trained(what+" has the compute", l.GetCompute())
	}
	if size := InputSize(spec); size > MaxUnits {
		c.path = "features"
		c.add("the features' dims add up to %d: %d are allowed", size, MaxUnits)
	}
	if len(spec.GetTasks()) > 0 {
		return
	}
	c.at("layers", len(layers)-1)
	if last := layers[len(layers)-1]; last.GetKind() == nil && last.GetUnits() != 1 || last.GetActivation() != model.Activation_SIGMOID {
		c.add("the last layer, %q, has %d units and activation %s: a probability needs 1 unit and SIGMOID", last.GetName(), last.GetUnits(), last.GetActivation())
	}
}
