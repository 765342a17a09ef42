package rows

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/kernels/versions"
)

// Tables are what the versions of one serving shard have in common: rows that are the same in several of
// them are there once. The zero value is ready.
type Tables struct {
	mu     sync.Mutex
	byName map[string]*shared
}

type shared struct {
	cfg      table.Config
	versions *versions.Table
}

// next begins a version of the table that cfg describes. One that the model declares otherwise than the
// version before shares nothing with it.
func (s *Tables) next(cfg table.Config) (*versions.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.byName[cfg.Name]
	if t == nil || !reflect.DeepEqual(kept(t.cfg), kept(cfg)) {
		all, err := versions.New(cfg)
		if err != nil {
			return nil, err
		}
		t = &shared{cfg, all}
	}
	v, err := t.versions.Next()
	if err != nil {
		return nil, err
	}
	if s.byName == nil {
		s.byName = map[string]*shared{}
	}
	s.byName[cfg.Name] = t
	return v, nil
}

// kept is what of a table's configuration its rows depend on: how they were learnt is nothing to a table that
// only stores, and may change between two exports.
func kept(cfg table.Config) table.Config {
	cfg.Optimizer, cfg.Segments = nil, slices.Clone(cfg.Segments)
	for i := range cfg.Segments {
		cfg.Segments[i].Optimizer = nil
	}
	return cfg
}

// drop ends a version.
func (s *Tables) drop(v *versions.Version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.byName[v.Name()]; v.Drop() && t.versions == v.Of() {
		delete(s.byName, v.Name())
	}
}

// configOf is a table that only stores, as the model declares its rows: whole or compressed. An export from
// before exports said so (spec is nil) has whole ones. How many rows there may be was decided in training;
// serving shards may be fewer than those.
func configOf(spec *model.ModelSpec, name string, dim int) (table.Config, error) {
	if spec == nil {
		return table.Config{Name: name, Dim: dim, Compressor: compress.FP32{}, Serving: true}, nil
	}
	cfg, err := modelspec.TableConfig(spec, name, true)
	cfg.MaxRows, cfg.MaxBytes = 0, 0
	return cfg, err
}

// Declare begins a table of the export, as spec says it is, unless it is there.
func (m *Shard) Declare(spec *model.ModelSpec, name string, dim int) error {
	if t := m.tables[name]; t != nil {
		if t.Dim() != dim {
			return fmt.Errorf("table %s: its rows have dim %d in one shard of the export and %d in another; export the model again", name, t.Dim(), dim)
		}
		return nil
	}
	cfg, err := configOf(spec, name, dim)
	if err != nil {
		return err
	}
	if m.Shared == nil {
		m.Shared = new(Tables)
	}
	t, err := m.Shared.next(cfg)
	if err != nil {
		return err
	}
	if t.Dim() != dim {
		m.Shared.drop(t)
		return fmt.Errorf("table %s: its rows have dim %d, the model declares %d; export the model again", name, dim, t.Dim())
	}
	m.has(t)
	return nil
}

// Whole ends the reading of an export: rows that were taken over from the version before and did not come go.
func (m *Shard) Whole() error {
	for _, name := range m.order {
		if err := m.tables[name].Whole(); err != nil {
			return err
		}
	}
	return nil
}

// Drop ends the version. Other versions stay as they are; who still asks for this one is refused.
func (m *Shard) Drop() {
	for _, name := range m.order {
		m.Shared.drop(m.tables[name])
	}
}
