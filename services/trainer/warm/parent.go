package warm

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/entrydump"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// Parent is a whole checkpoint of another job.
type Parent struct {
	cfg   Config
	dir   string // the job's folder
	parts []checkpoint.Manifest
}

// Find finds the checkpoint. Of the newest one all that is looked at is whether it is whole by what its
// parts say of themselves; Write reads them.
func (c *Config) Find() (*Parent, error) {
	want, err := c.id()
	if err != nil {
		return nil, err
	}
	dir, ids, err := c.checkpoints()
	if err != nil {
		return nil, err
	}
	if want != 0 && !slices.Contains(ids, want) {
		return nil, fmt.Errorf("%s holds no checkpoint %d: name one of %v", dir, want, ids)
	}
	var errs []error
	for _, id := range slices.Backward(ids) {
		if want != 0 && id != want {
			continue
		}
		p := &Parent{cfg: *c, dir: dir}
		err := p.read(id)
		if err == nil {
			return p, nil
		}
		errs = append(errs, fmt.Errorf("checkpoint %d: %w", id, err))
	}
	return nil, fmt.Errorf("no checkpoint in %s can be begun from: %w", dir, errors.Join(errs...))
}

// checkpoints finds the job's folder and the checkpoints in it, ascending.
func (c *Config) checkpoints() (dir string, ids []int64, err error) {
	found := map[string][]int64{}
	for _, pattern := range []string{checkpoint.Pattern, filepath.Join("training", "*", checkpoint.Pattern)} {
		paths, err := filepath.Glob(filepath.Join(escaped(c.Dir), pattern))
		if err != nil {
			return "", nil, fmt.Errorf("look for checkpoints in %s: %w", c.Dir, err)
		}
		for _, path := range paths {
			if id, ok := checkpoint.ID(filepath.Base(path)); ok {
				found[filepath.Dir(path)] = append(found[filepath.Dir(path)], id)
			}
		}
	}
	if len(found) == 0 {
		return "", nil, fmt.Errorf("no checkpoint lies in %s: restore-dir names the folder of a job, in which its %s and so on are, or that of its system", c.Dir, checkpoint.Name[int64](1))
	}
	if len(found) > 1 {
		return "", nil, fmt.Errorf("checkpoints of several jobs lie in %s: name one of %q with restore-dir", c.Dir, slices.Sorted(maps.Keys(found)))
	}
	for dir, ids = range found {
		slices.Sort(ids)
	}
	dir, err = filepath.Abs(dir)
	return dir, ids, err
}

// escaped is a path that a pattern matches as it is written.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// read looks at what the parts say.
func (p *Parent) read(id int64) error {
	for i := 0; ; i++ {
		m, err := checkpoint.ReadManifest(filepath.Join(p.dir, checkpoint.Part(id, i)))
		if errors.Is(err, os.ErrNotExist) && i > 0 {
			break
		}
		if err != nil {
			return err
		}
		p.parts = append(p.parts, m)
	}
	first, of := &p.parts[0], filepath.Join(p.dir, checkpoint.Name(id))
	if n := int(first.Shards); n != len(p.parts) {
		return fmt.Errorf("%s holds %d of %d shards: it was not written to its end", of, len(p.parts), n)
	}
	for i := range p.parts {
		m := &p.parts[i]
		if m.Job != first.Job || m.Checkpoint != id || m.Shard != uint32(i) || m.Shards != first.Shards || m.Turn != first.Turn || m.Generation != first.Generation || !maps.Equal(m.Offsets, first.Offsets) {
			return fmt.Errorf("%s: ps_%d is shard %d of %d of job %q, checkpoint %d, at offsets %v; ps_0 is of job %q, at %v: they are of no one cut", of, i, m.Shard, m.Shards, m.Job, m.Checkpoint, m.Offsets, first.Job, first.Offsets)
		}
	}
	return nil
}

// Fact is the parent as facts name it.
func (p *Parent) Fact() *training.Parent {
	m := &p.parts[0]
	return &training.Parent{Job: m.Job, Dir: p.dir, Checkpoint: m.Checkpoint, Optimizer: p.cfg.Optimizer, Offsets: p.cfg.Offsets}
}

// Offsets are where the new job begins to learn: where the parent stood, or nowhere.
func (p *Parent) Offsets() map[int32]int64 {
	if !p.cfg.Offsets {
		return nil
	}
	return p.parts[0].Offsets
}

// Fits says everything that keeps the model from taking the checkpoint over: it must have its tables and
// variables in their sizes and, unless the optimizers begin anew, optimizers of their kinds. A table
// that the parent does not have begins empty.
func (p *Parent) Fits(spec *model.ModelSpec) error {
	var errs []error
	misfit := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, t := range p.parts[0].Tables {
		declared := modelspec.Table(spec, t.Name)
		if declared == nil {
			misfit("table %q is not declared", t.Name)
			continue
		}
		if int(declared.GetDim()) != t.Dim {
			misfit("table %q has rows of %d, declared are %d", t.Name, t.Dim, declared.GetDim())
			continue
		}
		dumps, err := dumpsOf(spec, t.Name)
		if err != nil {
			return err
		}
		if p.cfg.Optimizer && t.Opt != nil && !reflect.DeepEqual(t.Opt, dumps) {
			misfit("table %q was learnt by %v, declared are %v, which cannot go on from its slots: --restore-optimizer=false begins them anew", t.Name, checkpoint.Kinds(t.Opt), checkpoint.Kinds(dumps))
		}
	}
	shapes := p.shapes()
	for _, v := range modelspec.Variables(spec) {
		shape, ok := shapes[v.Name]
		if !ok {
			misfit("variable %q is not in it", v.Name)
		} else if !slices.Equal(shape, v.Shape) {
			misfit("variable %q has the shape %v, declared is %v", v.Name, shape, v.Shape)
		}
		delete(shapes, v.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		misfit("variable %q is not declared", name)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("model %q cannot begin from checkpoint %d of job %q in %s: %w", spec.GetName(), p.parts[0].Checkpoint, p.parts[0].Job, p.dir, err)
	}
	return nil
}

// shapes are those of the dense variables.
func (p *Parent) shapes() map[string][]uint32 {
	shapes := map[string][]uint32{}
	for i := range p.parts {
		m := &p.parts[i]
		for k, name := range m.Variables {
			shapes[name] = m.Shapes[k]
		}
		for _, b := range m.Bands {
			shapes[b.Name] = b.Shape
		}
	}
	return shapes
}

// dumpsOf is how slots of a declared table lie in a checkpoint.
func dumpsOf(spec *model.ModelSpec, name string) ([]checkpoint.Dump, error) {
	cfg, err := modelspec.TableConfig(spec, name, false)
	if err != nil {
		return nil, err
	}
	l, _ := entrydump.LayoutOf(cfg)
	return checkpoint.DumpsOf(l.Dumps), nil
}
