package modeldir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/entrydump"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/tensorbundle"
	"github.com/monolith-go/monolith/internal/vfs"
	"github.com/monolith-go/monolith/kernels/table"
)

// Source is a checkpoint of a job here, whose shards are read one at a time.
type Source struct {
	Spec   *model.ModelSpec
	Step   uint64 // the greatest of its shards
	Shards int
	Read   func(shard int) (*checkpoint.Shard, error)
}

// Writing says how a checkpoint is written.
type Writing struct {
	Dir string // the model_dir; made where it is not there
	// Servers are the parameter servers that are to read the tables. Default: the shards there are.
	Servers int
	Layout  Layout
	Names   Names
	Now     time.Time
}

// Table is what became of one table.
type Table struct {
	Name   string `json:"name"`
	Theirs string `json:"theirs"`
	Rows   uint64 `json:"rows"`
}

// Written is what was written.
type Written struct {
	Checkpoint string  `json:"checkpoint"` // its path, without endings
	Servers    int     `json:"servers"`
	Tables     []Table `json:"tables"`
	Variables  int     `json:"variables"`
	// Uncounted are tables whose admission filters could not be written: ids without a row are counted anew.
	Uncounted []string `json:"uncounted,omitempty"`
}

// writer is a checkpoint being written.
type writer struct {
	*Writing
	src    Source
	theirs map[string]string
	assets string // where tables are written
	counts map[int32]int64
	dense  map[string]checkpoint.Variable
	bands  []checkpoint.Band
	seen   []bool // shards whose dense part was taken
	out    *Written
}

// Write writes src as the newest checkpoint of a model_dir: the tables, the variables, and last the state
// file that names them. A crash before that leaves files that nothing names, which the next attempt refuses
// to write over.
func Write(ctx context.Context, src Source, how Writing) (*Written, error) {
	if how.Servers == 0 {
		how.Servers = src.Shards
	}
	if err := how.Names.Check(src.Spec); err != nil {
		return nil, err
	}
	theirs, err := how.Names.theirs(src.Spec, how.Layout)
	if err != nil {
		return nil, err
	}
	name := checkpoint.Name(src.Step)
	prefix := filepath.Join(how.Dir, name)
	for _, path := range []string{prefix + assetsName, tensorbundle.IndexName(prefix)} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is there already: name another folder, or remove it if an export broke off", path)
		}
	}
	w := &writer{
		Writing: &how, src: src, theirs: theirs, assets: prefix + assetsName + ".tmp", counts: map[int32]int64{},
		dense: map[string]checkpoint.Variable{}, seen: make([]bool, src.Shards), out: &Written{Checkpoint: prefix, Servers: how.Servers},
	}
	for _, t := range src.Spec.GetTables() {
		w.out.Tables = append(w.out.Tables, Table{Name: t.GetName(), Theirs: theirs[t.GetName()]})
	}
	if err := os.RemoveAll(w.assets); err != nil { // of one that broke off
		return nil, err
	}
	if err := durable.MkdirAll(w.assets, 0o755); err != nil {
		return nil, err
	}
	for ps := range how.Servers {
		if err := w.server(ctx, ps); err != nil {
			return nil, errors.Join(err, os.RemoveAll(w.assets))
		}
	}
	all, err := tensors(src.Spec, &how.Names, src.Step, w.dense, w.bands)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(w.assets))
	}
	w.out.Variables = len(modelspec.Variables(src.Spec))
	return w.out, w.publish(ctx, prefix, name, all)
}

// publish gives what was written its names.
func (w *writer) publish(ctx context.Context, prefix, name string, all []tensorbundle.Tensor) error {
	if err := os.Rename(w.assets, prefix+assetsName); err != nil {
		return err
	}
	if err := durable.SyncDir(w.Dir); err != nil {
		return err
	}
	if err := tensorbundle.Write(prefix, all); err != nil {
		return err
	}
	if err := WriteInfo(filepath.Join(w.Dir, checkpoint.InfoName(w.src.Step)), w.counts); err != nil {
		return err
	}
	kind := MonolithCheckpointState_MULTI_CUCKOO_HASH_MAP
	if w.Layout == Single {
		kind = MonolithCheckpointState_CUCKOO_HASH_MAP
	}
	return point(ctx, w.Dir, name, kind, w.Now)
}

// server writes the tables of one server: of the shard of the same number where there are as many of
// them, else of what of all shards is its.
func (w *writer) server(ctx context.Context, ps int) error {
	rows, clean := map[string][]table.Row{}, w.Servers == w.src.Shards
	for i := range w.src.Shards {
		if clean && i != ps {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		s, err := w.src.Read(i)
		if err != nil {
			return err
		}
		for name, all := range s.Tables {
			for _, r := range all {
				if modelspec.ShardOf(r.ID, w.Servers) == ps {
					rows[name] = append(rows[name], r)
				}
			}
		}
		if err := w.filters(s, ps, clean); err != nil {
			return err
		}
		if !w.seen[i] {
			w.seen[i] = true
			for name, v := range s.Dense {
				w.dense[name] = v
			}
			w.bands = append(w.bands, s.Bands...)
		}
	}
	return w.tables(ps, rows)
}

func (w *writer) tables(ps int, rows map[string][]table.Row) error {
	var parts []entrydump.Part
	for i, t := range w.src.Spec.GetTables() {
		cfg, err := config(w.src.Spec, t.GetName(), w.theirs[t.GetName()])
		if err != nil {
			return err
		}
		p := entrydump.Part{Config: cfg}
		if p.Table, err = table.New(cfg); err != nil {
			return err
		}
		some := rows[t.GetName()]
		if err := p.Table.Restore(some); err != nil {
			return err
		}
		for _, r := range some {
			countSlot(w.counts, modelspec.SlotOf(r.ID))
		}
		w.out.Tables[i].Rows += uint64(len(some))
		if w.Layout == Single {
			if err := entrydump.Save(filepath.Join(w.assets, singleBase(cfg.Name, ps)), p, entrydump.Options{}); err != nil {
				return err
			}
		}
		parts = append(parts, p)
	}
	if w.Layout == Single || len(parts) == 0 {
		return nil
	}
	return entrydump.SaveMulti(filepath.Join(w.assets, multiBase(ps)), parts, entrydump.Options{})
}

// filters writes the states of a shard's admission filters, which cannot be taken apart. The original has no
// use for them: where its own filters put a cell is drawn anew in every process.
func (w *writer) filters(s *checkpoint.Shard, ps int, clean bool) error {
	for name, state := range s.Filters {
		if !clean {
			if !slices.Contains(w.out.Uncounted, name) {
				w.out.Uncounted = append(w.out.Uncounted, name)
				slices.Sort(w.out.Uncounted)
			}
			continue
		}
		if err := entrydump.SaveFilter(filterPath(w.assets, w.theirs[name], ps), sealed(state), entrydump.Options{}); err != nil {
			return err
		}
	}
	return nil
}

func filterPath(assets, theirs string, ps int) string {
	return vfs.Join(assets, entrydump.BaseName(admissionName+theirs+"_"+strconv.Itoa(ps)))
}

// sealed is a filter's state as it was written.
type sealed []byte

func (s sealed) MarshalBinary() ([]byte, error) { return s, nil }

// config is a table of the model under another name, without limits and filter: it is there to be
// written, or as it was read.
func config(spec *model.ModelSpec, ours, theirs string) (table.Config, error) {
	cfg, err := modelspec.TableConfig(spec, ours, false)
	if err != nil {
		return cfg, err
	}
	cfg.Name, cfg.Admitter, cfg.MaxRows, cfg.MaxBytes = theirs, nil, 0, 0
	return cfg, nil
}
