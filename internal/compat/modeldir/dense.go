package modeldir

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/tensorbundle"
	"github.com/monolith-go/monolith/kernels/optim"
)

const stepName = "global_step"

// Optimizers' slots stand beside their variable: adagrad's as TensorFlow calls its accumulator, which is
// the same; another's under a name that only this package reads, one for each band.
func adagradName(theirs string) string { return theirs + "/Adagrad" }
func slotsName(theirs string, at int) string {
	return theirs + "/monolith_slots_" + strconv.Itoa(at)
}

// isAdagrad says whether the slots of o are one accumulator for each number.
func isAdagrad(o optim.Optimizer, size int) bool {
	d, ok := o.(optim.Dumper)
	if !ok || o.SlotSize(size) != size {
		return false
	}
	dumps := d.Dumps(size)
	return len(dumps) == 1 && dumps[0].Kind == "adagrad" && len(dumps[0].Planes) == 1 && dumps[0].Planes[0].To-dumps[0].Planes[0].From == size
}

func shapeOf(shape []uint32) []int64 {
	out := make([]int64, len(shape))
	for i, d := range shape {
		out[i] = int64(d)
	}
	return out
}

// tensors are the dense variables as a bundle has them.
func tensors(spec *model.ModelSpec, names *Names, step uint64, dense map[string]checkpoint.Variable, bands []checkpoint.Band) ([]tensorbundle.Tensor, error) {
	out := []tensorbundle.Tensor{{Name: stepName, Ints: []int64{int64(step)}}}
	variables := modelspec.Variables(spec)
	whole := make([]tensorbundle.Tensor, len(variables))
	slots := make([]tensorbundle.Tensor, len(variables))
	for _, b := range modelspec.Bands(variables) {
		v, theirs := variables[b.Variable], names.variable(b.Name)
		if theirs == "" {
			continue
		}
		have, ok := (&checkpoint.Shard{Dense: dense, Bands: bands}).Band(b.Name, b.At)
		if !ok || len(have.Values) != b.Size {
			return nil, fmt.Errorf("the checkpoint lacks %d numbers of variable %q at %d", b.Size, b.Name, b.At)
		}
		w, s := &whole[b.Variable], &slots[b.Variable]
		w.Name, w.Shape, w.Floats = theirs, shapeOf(v.Shape), append(w.Floats, have.Values...)
		if isAdagrad(modelspec.VariableOptimizer(spec, b.Name), b.Size) && len(have.Slots) == b.Size {
			s.Name, s.Shape, s.Floats = adagradName(theirs), w.Shape, append(s.Floats, have.Slots...)
		} else if len(have.Slots) > 0 {
			out = append(out, tensorbundle.Tensor{Name: slotsName(theirs, b.At), Shape: []int64{int64(len(have.Slots))}, Floats: have.Slots})
		}
	}
	for _, t := range append(whole, slots...) {
		if t.Name != "" {
			out = append(out, t)
		}
	}
	return out, nil
}

// denseRead are the dense variables of a model_dir, by band as shards keep them.
type denseRead struct {
	parts     []bandRead
	untrained []string // variables that are not there, as was said
	anew      []string // those without slots of their optimizer
	left      []string // tensors that nothing reads
}

type bandRead struct {
	band  modelspec.Band
	value checkpoint.Variable
}

// readDense reads what spec declares; bundle may be nil: all is untrained.
func readDense(bundle *tensorbundle.Bundle, spec *model.ModelSpec, names *Names) (*denseRead, error) {
	d, used := &denseRead{}, map[string]bool{stepName: true}
	variables := modelspec.Variables(spec)
	values, accumulators := make([][]float32, len(variables)), make([][]float32, len(variables))
	for i, v := range variables {
		theirs := names.variable(v.Name)
		if bundle == nil || theirs == "" {
			d.untrained = append(d.untrained, v.Name)
			values[i] = modelspec.InitVariable(spec, v)
			continue
		}
		var err error
		if values[i], err = numbers(bundle, theirs, v); err != nil {
			return nil, err
		}
		used[theirs] = true
		if e := bundle.Entry(adagradName(theirs)); e != nil && isAdagrad(modelspec.VariableOptimizer(spec, v.Name), v.Size) && e.Numbers() == int64(v.Size) {
			used[e.Name] = true
			if accumulators[i], err = bundle.Floats(e.Name); err != nil {
				return nil, err
			}
		}
	}
	for _, b := range modelspec.Bands(variables) {
		o := modelspec.VariableOptimizer(spec, b.Name)
		v := checkpoint.Variable{Shape: b.Shape, Values: values[b.Variable][b.At : b.At+b.Size], Slots: make([]float32, o.SlotSize(b.Size))}
		name := slotsName(names.variable(b.Name), b.At)
		switch {
		case accumulators[b.Variable] != nil:
			v.Slots = accumulators[b.Variable][b.At : b.At+b.Size]
		case bundle != nil && bundle.Entry(name) != nil && bundle.Entry(name).Numbers() == int64(len(v.Slots)):
			used[name] = true
			var err error
			if v.Slots, err = bundle.Floats(name); err != nil {
				return nil, err
			}
		default:
			o.InitSlots(v.Slots)
			if len(v.Slots) > 0 && !slices.Contains(d.untrained, b.Name) && !slices.Contains(d.anew, b.Name) {
				d.anew = append(d.anew, b.Name)
			}
		}
		d.parts = append(d.parts, bandRead{b, v})
	}
	if bundle != nil {
		for _, e := range bundle.Entries {
			if !used[e.Name] {
				d.left = append(d.left, e.Name)
			}
		}
	}
	return d, nil
}

// numbers reads the tensor that a variable is called there, or says which could be meant.
func numbers(bundle *tensorbundle.Bundle, theirs string, v modelspec.Variable) ([]float32, error) {
	e, want := bundle.Entry(theirs), shapeOf(v.Shape)
	if e != nil && slices.Equal(e.Shape, want) {
		return bundle.Floats(theirs)
	}
	if e != nil {
		return nil, fmt.Errorf("variable %q has the shape %v, the tensor %q has %v: declare the model as it was, or name another tensor with --variable %s=TENSOR", v.Name, want, theirs, e.Shape, v.Name)
	}
	var alike []string
	for _, e := range bundle.Entries {
		if e.Type == tensorbundle.Float && slices.Equal(e.Shape, want) && len(alike) < 16 {
			alike = append(alike, strconv.Quote(e.Name))
		}
	}
	return nil, fmt.Errorf("there is no tensor %q: name that of the shape %v that is meant, as in --variable %s=TENSOR (there are %s), or none, to begin it untrained, as in --variable %s=", theirs, want, v.Name, strings.Join(alike, ", "), v.Name)
}

// put gives the shards of a checkpoint their bands.
func (d *denseRead) put(shards []*checkpoint.Shard, variables []modelspec.Variable) {
	for _, p := range d.parts {
		s := shards[p.band.Shard(len(shards))]
		if p.band.Size == variables[p.band.Variable].Size {
			s.Dense[p.band.Name] = p.value
		} else {
			s.Bands = append(s.Bands, checkpoint.Band{Name: p.band.Name, At: p.band.At, Variable: p.value})
		}
	}
}
