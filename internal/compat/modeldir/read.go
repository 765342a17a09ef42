package modeldir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/entrydump"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/tensorbundle"
	"github.com/monolith-go/monolith/internal/vfs"
	"github.com/monolith-go/monolith/kernels/filter"
	"github.com/monolith-go/monolith/kernels/table"
)

// Reading says which checkpoint of a model_dir is read, and how.
type Reading struct {
	Dir   string
	Ckpt  string // its name or step; empty: the newest
	Names Names
	// Shards are those of the checkpoint that is made. Default: as many as servers wrote the tables.
	Shards int
	// Fresh takes rows that say nothing of their optimizers, which begin anew.
	Fresh bool
	// Sparse takes a checkpoint without dense variables, which begin untrained.
	Sparse bool
}

// Read is what was read.
type Read struct {
	Checkpoint string              `json:"checkpoint"` // its path, without endings
	Step       int64               `json:"step"`
	Shards     []*checkpoint.Shard `json:"-"` // whose manifests say nothing of a job yet
	Tables     []Table             `json:"tables"`
	Variables  int                 `json:"variables"`
	Untrained  []string            `json:"untrained,omitempty"` // variables that begin as an untrained model's
	Anew       []string            `json:"anew,omitempty"`      // variables whose optimizers begin anew
	Uncounted  []string            `json:"uncounted,omitempty"` // tables whose admission filters begin anew
	Left       []string            `json:"left,omitempty"`      // tables and tensors that the model does not declare
}

// reader is a checkpoint being read.
type reader struct {
	*Reading
	spec    *model.ModelSpec
	assets  string
	multi   map[int]string            // sets of several tables, by server
	single  map[string]map[int]string // sets of one, by name of ours, by server
	theirs  map[string]string         // by name of ours; "" where it is said that there is none
	servers int
	out     *Read
}

// ReadCheckpoint reads a checkpoint of a model_dir into shards of the declared model, all in memory. What
// the files and the model disagree on is an error that says which file, record, table or tensor it is.
func ReadCheckpoint(ctx context.Context, spec *model.ModelSpec, how Reading) (*Read, error) {
	if err := how.Names.Check(spec); err != nil {
		return nil, err
	}
	f, err := find(ctx, how.Dir, how.Ckpt)
	if err != nil {
		return nil, err
	}
	if f.sparse && !how.Sparse {
		return nil, fmt.Errorf("%s is missing, %s holds tables alone: bring it back, or begin with untrained dense variables by --sparse-only", tensorbundle.IndexName(f.prefix), f.prefix+assetsName)
	}
	r := &reader{Reading: &how, spec: spec, assets: f.prefix + assetsName, multi: map[int]string{}, single: map[string]map[int]string{}, theirs: map[string]string{}, out: &Read{Checkpoint: f.prefix, Step: f.step}}
	var bundle *tensorbundle.Bundle
	if !f.sparse {
		if bundle, err = tensorbundle.Open(f.prefix); err != nil {
			return nil, err
		}
		if bundle.Entry(stepName) != nil {
			steps, err := bundle.Ints(stepName)
			if err != nil {
				return nil, err
			}
			if len(steps) == 1 {
				r.out.Step = steps[0]
			}
		}
	}
	if r.out.Step < 0 {
		return nil, fmt.Errorf("%s: global_step is %d: it must not be negative", f.prefix, r.out.Step)
	}
	dense, err := readDense(bundle, spec, &how.Names)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.prefix, err)
	}
	if err := r.survey(); err != nil {
		return nil, err
	}
	if err := r.begin(); err != nil {
		return nil, err
	}
	variables := modelspec.Variables(spec)
	dense.put(r.out.Shards, variables)
	r.out.Variables, r.out.Untrained, r.out.Anew = len(variables), dense.untrained, dense.anew
	r.out.Left = append(r.out.Left, dense.left...)
	if err := r.tables(ctx); err != nil {
		return nil, err
	}
	return r.out, r.filters()
}

// survey finds where each table lies.
func (r *reader) survey() error {
	bases, err := sets(r.assets)
	if err != nil {
		return err
	}
	claimed, servers := map[string]bool{}, map[int]bool{}
	inMulti := map[string]bool{}
	for _, base := range bases {
		ps, ok := server(base, multiName)
		if !ok {
			continue
		}
		if other := r.multi[ps]; other != "" {
			return fmt.Errorf("%s holds %s and %s, both of server %d: remove the older one", r.assets, other, base, ps)
		}
		names, err := entrydump.MultiNames(vfs.Join(r.assets, base))
		if err != nil {
			return err
		}
		for _, name := range names {
			inMulti[name] = true
		}
		r.multi[ps], claimed[base], servers[ps] = base, true, true
	}
	for _, t := range r.spec.GetTables() {
		name := t.GetName()
		candidates := r.Names.candidates(r.spec, name)
		if candidates[0] == "" {
			continue // it begins empty
		}
		for _, theirs := range candidates {
			if r.theirs[name] != "" {
				break
			}
			if inMulti[theirs] {
				r.theirs[name] = theirs
				break
			}
			for _, base := range bases {
				if ps, ok := server(base, entrydump.BaseName(singleName+theirs)); ok {
					if claimed[base] {
						return fmt.Errorf("%s may be of table %q as well as of another one: name each with --table", vfs.Join(r.assets, base), name)
					}
					if r.single[name] == nil {
						r.single[name] = map[int]string{}
					}
					r.single[name][ps], r.theirs[name], claimed[base], servers[ps] = base, theirs, true, true
				}
			}
		}
		if r.theirs[name] == "" {
			for i := range candidates {
				candidates[i] = strconv.Quote(candidates[i])
			}
			return fmt.Errorf("%s has no table %s: name what table %q is called there with --table %s=NAME, or --table %s= to begin it empty; there are %s", r.assets, strings.Join(candidates, " or "), name, name, name, there(inMulti, bases))
		}
	}
	for ps := range servers {
		r.servers = max(r.servers, ps+1)
	}
	if len(servers) != r.servers {
		return fmt.Errorf("%s holds tables of %d servers, the last of which is number %d: bring the others' back", r.assets, len(servers), r.servers-1)
	}
	if err := r.everywhere(); err != nil {
		return err
	}
	for _, base := range bases {
		if !claimed[base] && !strings.HasPrefix(base, admissionName) {
			r.out.Left = append(r.out.Left, base)
		}
	}
	return r.distinct()
}

// everywhere refuses tables that lie on some of the servers alone.
func (r *reader) everywhere() error {
	for _, t := range r.spec.GetTables() {
		name := t.GetName()
		for ps := range r.servers {
			switch of := r.single[name]; {
			case of != nil && of[ps] == "":
				return fmt.Errorf("%w: %s holds table %q of %d servers of %d, %s is missing: bring it back", entrydump.ErrIncomplete, r.assets, r.theirs[name], len(of), r.servers, singleBase(r.theirs[name], ps))
			case of == nil && r.theirs[name] != "" && r.multi[ps] == "":
				return fmt.Errorf("%w: %s holds the tables of %d servers of %d, %s is missing: bring it back", entrydump.ErrIncomplete, r.assets, len(r.multi), r.servers, multiBase(ps))
			}
		}
	}
	return nil
}

// there lists names for an error, the first of them.
func there(multi map[string]bool, bases []string) string {
	var names []string
	for name := range multi {
		names = append(names, name)
	}
	for _, base := range bases {
		if name, ok := strings.CutPrefix(base, singleName); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names[:min(len(names), 16)], ", ")
}

// distinct refuses two tables of the model that are one in the files.
func (r *reader) distinct() error {
	of := map[string]string{}
	for _, t := range r.spec.GetTables() {
		theirs := r.theirs[t.GetName()]
		if other, twice := of[theirs]; twice && theirs != "" {
			return fmt.Errorf("tables %q and %q are both %q in %s: name each with --table", other, t.GetName(), theirs, r.assets)
		}
		of[theirs] = t.GetName()
	}
	return nil
}

// begin makes shards without rows.
func (r *reader) begin() error {
	n := r.Shards
	if n == 0 {
		n = max(r.servers, 1)
	}
	for i := range n {
		s := &checkpoint.Shard{Spec: r.spec, Tables: map[string][]table.Row{}, Dense: map[string]checkpoint.Variable{}, Filters: map[string][]byte{}}
		s.Manifest.Shard, s.Manifest.Shards, s.Manifest.Step = uint32(i), uint32(n), uint64(r.out.Step)
		s.Manifest.Offsets = map[int32]int64{}
		for _, t := range r.spec.GetTables() {
			cfg, err := config(r.spec, t.GetName(), t.GetName())
			if err != nil {
				return err
			}
			l, fresh := entrydump.LayoutOf(cfg)
			s.Manifest.Tables = append(s.Manifest.Tables, checkpoint.TableInfo{Name: t.GetName(), Dim: l.Dim, Slots: len(fresh), Opt: checkpoint.DumpsOf(l.Dumps)})
			s.Tables[t.GetName()] = nil
		}
		r.out.Shards = append(r.out.Shards, s)
	}
	return nil
}

// tables reads the rows of every server.
func (r *reader) tables(ctx context.Context) error {
	for _, t := range r.spec.GetTables() {
		r.out.Tables = append(r.out.Tables, Table{Name: t.GetName(), Theirs: r.theirs[t.GetName()]})
	}
	left := map[string]bool{}
	for ps := range r.servers {
		if err := ctx.Err(); err != nil {
			return err
		}
		var several []table.Config
		for i, t := range r.spec.GetTables() {
			name := t.GetName()
			cfg, err := config(r.spec, name, r.theirs[name])
			if err != nil {
				return err
			}
			if base := r.single[name][ps]; base != "" {
				one, err := entrydump.Restore(vfs.Join(r.assets, base), cfg, entrydump.Reading{Fresh: r.Fresh})
				if err != nil {
					return err
				}
				r.take(i, one)
			} else if r.single[name] == nil && cfg.Name != "" {
				several = append(several, cfg)
			}
		}
		if r.multi[ps] == "" {
			continue
		}
		got, err := entrydump.RestoreMulti(vfs.Join(r.assets, r.multi[ps]), several, nil, entrydump.Reading{Fresh: r.Fresh})
		if err != nil {
			return err
		}
		for i, t := range r.spec.GetTables() {
			if one := got.Tables[r.theirs[t.GetName()]]; one != nil {
				r.take(i, one)
			}
		}
		for _, name := range got.Skipped {
			left[name] = true
		}
	}
	for name := range left {
		r.out.Left = append(r.out.Left, name)
	}
	slices.Sort(r.out.Left)
	return nil
}

// take deals the rows of the i-th table among the shards.
func (r *reader) take(i int, t *table.Table) {
	name, shards := r.out.Tables[i].Name, r.out.Shards
	for _, row := range t.Snapshot() {
		s := shards[modelspec.ShardOf(row.ID, len(shards))]
		s.Tables[name] = append(s.Tables[name], row)
		info := &s.Manifest.Tables[i]
		info.Clock = max(info.Clock, row.UnixSec)
		r.out.Tables[i].Rows++
	}
}

// filters reads the states of admission filters that Write has left; the original's are of no use.
func (r *reader) filters() error {
	for _, t := range r.spec.GetTables() {
		missing := false
		for ps, s := range r.out.Shards {
			f, err := modelspec.Filter(t, r.spec.GetSeed())
			if err != nil {
				return err
			}
			if _, none := f.(filter.None); none {
				break
			}
			err = fs.ErrNotExist // of another number of servers
			if len(r.out.Shards) == r.servers {
				err = entrydump.RestoreFilter(filterPath(r.assets, r.theirs[t.GetName()], ps), f)
			}
			if errors.Is(err, fs.ErrNotExist) {
				missing = true
				continue
			}
			if err != nil {
				return err
			}
			if s.Filters[t.GetName()], err = f.MarshalBinary(); err != nil {
				return err
			}
		}
		if missing {
			r.out.Uncounted = append(r.out.Uncounted, t.GetName())
		}
	}
	return nil
}
