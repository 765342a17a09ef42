package modelspec

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/rule"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/filter"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

// Segment is a part of every row of a table, ready for use. The optimizer follows the
// global step of each optim.Step by itself where a learning-rate function or a warm-up
// is declared.
type Segment struct {
	Dim         int
	Optimizer   optim.Optimizer
	Initializer table.Initializer
	Compressor  compress.Compressor
}

// Segments builds the segments of t, one or more; their dims add up to t's. seed is the
// model's.
func Segments(t *model.Table, seed uint64) ([]Segment, error) {
	declared := t.GetSegments()
	if len(declared) == 0 {
		declared = []*model.Segment{{
			Dim: t.GetDim(), Optimizer: t.GetOptimizer(), Initializer: t.GetInitializer(),
			Compressor: t.GetCompressor(), LearningRate: t.GetLearningRate(),
		}}
	} else if t.GetOptimizer() != nil || t.GetInitializer() != nil || t.GetCompressor() != nil || t.GetLearningRate() != nil {
		return nil, fmt.Errorf("segments stand beside an optimizer, initializer, compressor or learning_rate of the whole row: move those into the segments")
	}
	if len(declared) > MaxSegments {
		return nil, fmt.Errorf("%d segments: %d are allowed", len(declared), MaxSegments)
	}
	segments, sum := make([]Segment, len(declared)), uint64(0)
	for i, d := range declared {
		s, err := segment(d, table.Key(seed, t.GetName(), int64(i)))
		if err != nil && len(t.GetSegments()) > 0 {
			return nil, fmt.Errorf("segment %d: %w", i+1, err)
		} else if err != nil {
			return nil, err
		}
		segments[i], sum = s, sum+uint64(s.Dim)
	}
	if sum != uint64(t.GetDim()) {
		return nil, fmt.Errorf("dim is %d where the segments add up to %d: set dim to that", t.GetDim(), sum)
	}
	return segments, nil
}

func segment(d *model.Segment, key uint64) (s Segment, err error) {
	if d.GetDim() < 1 || d.GetDim() > MaxDim {
		return s, fmt.Errorf("it has dim %d: give 1 to %d", d.GetDim(), MaxDim)
	}
	s.Dim = int(d.GetDim())
	if s.Optimizer, err = rule.Optimizer(d.GetOptimizer(), d.GetLearningRate(), key); err != nil {
		return s, err
	}
	if err = optim.CheckDim(s.Optimizer, s.Dim); err != nil {
		return s, err
	}
	if s.Initializer, err = rule.Initializer(d.GetInitializer()); err != nil {
		return s, err
	}
	s.Compressor, err = rule.Compressor(d.GetCompressor())
	return s, err
}

// Filter decides which ids of t get a row; filter.None{} where nothing is declared.
// seed is the model's.
func Filter(t *model.Table, seed uint64) (filter.Filter, error) {
	a := t.GetAdmission()
	if a == nil {
		return filter.None{}, nil
	}
	thresholds := filter.Thresholds{Default: a.GetThreshold(), Slots: map[uint32]uint32{}}
	for _, s := range a.GetSlots() {
		if err := newSlot(thresholds.Slots, s.GetSlot()); err != nil {
			return nil, fmt.Errorf("admission: %w", err)
		}
		thresholds.Slots[s.GetSlot()] = s.GetThreshold()
	}
	return rule.Filter(a, table.Key(seed, t.GetName(), 0), thresholds)
}

// Expiry says after how many days without an update rows go.
type Expiry struct {
	Days  uint32            // 0: never
	Slots map[uint32]uint32 // by slot, instead of Days
}

// ExpiryOf is what t declares.
func ExpiryOf(t *model.Table) (Expiry, error) {
	e := Expiry{Days: t.GetExpire().GetDays(), Slots: map[uint32]uint32{}}
	if e.Days > MaxDays {
		return e, fmt.Errorf("expire: %d days: give at most %d, or 0 for never", e.Days, MaxDays)
	}
	for _, s := range t.GetExpire().GetSlots() {
		if err := newSlot(e.Slots, s.GetSlot()); err != nil {
			return e, fmt.Errorf("expire: %w", err)
		}
		if s.GetDays() > MaxDays {
			return e, fmt.Errorf("expire: slot %d has %d days: give at most %d, or 0 for never", s.GetSlot(), s.GetDays(), MaxDays)
		}
		e.Slots[s.GetSlot()] = s.GetDays()
	}
	return e, nil
}

// newSlot complains about a slot that cannot be, or is in seen.
func newSlot(seen map[uint32]uint32, slot uint32) error {
	if slot > MaxSlot {
		return fmt.Errorf("slot %d does not exist: give at most %d", slot, MaxSlot)
	}
	if _, twice := seen[slot]; twice {
		return fmt.Errorf("slot %d is named twice: name it once", slot)
	}
	return nil
}

// TableConfig is what spec declares under name, for a training or a serving table. The
// Admitter of the former is nil, or the Filter whose state belongs into checkpoints; a
// serving table takes what training has admitted, and drops rows that are all but zero
// where skip_zero_embedding says so.
func TableConfig(spec *model.ModelSpec, name string, serving bool) (table.Config, error) {
	t := Table(spec, name)
	if t == nil {
		return table.Config{}, fmt.Errorf("model %q declares no table %q", spec.GetName(), name)
	}
	segments, err := Segments(t, spec.GetSeed())
	if err != nil {
		return table.Config{}, fmt.Errorf("table %q: %w", name, err)
	}
	cfg := table.Config{
		Name: name, Seed: spec.GetSeed(), Serving: serving, SkipZero: serving && t.GetSkipZeroEmbedding(),
		MaxRows: int(min(t.GetMaxRows(), math.MaxInt)), MaxBytes: int64(min(t.GetMaxBytes(), math.MaxInt64)),
	}
	for _, s := range segments {
		cfg.Segments = append(cfg.Segments, table.Segment(s))
	}
	f, err := Filter(t, spec.GetSeed())
	if err != nil {
		return table.Config{}, fmt.Errorf("table %q: %w", name, err)
	}
	if _, all := f.(filter.None); !all && !serving {
		cfg.Admitter = f
	}
	return cfg, nil
}

// NewTable makes the empty embedding table that spec declares under name, for training.
func NewTable(spec *model.ModelSpec, name string) (*table.Table, error) {
	cfg, err := TableConfig(spec, name, false)
	if err != nil {
		return nil, err
	}
	return table.New(cfg)
}
