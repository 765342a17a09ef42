package table

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrUnknown is wrapped by the error of a call that names a table that is not there.
var ErrUnknown = errors.New("unknown table")

// Multi is a set of tables, called by name. The set never changes, so it is safe for
// concurrent use as its tables are.
type Multi struct {
	tables map[string]*Table
	names  []string
}

// NewMulti makes a table of each configuration. Names must differ.
func NewMulti(configs ...Config) (*Multi, error) {
	m := &Multi{tables: make(map[string]*Table, len(configs))}
	for _, c := range configs {
		if _, twice := m.tables[c.Name]; twice {
			return nil, fmt.Errorf("table %s: two tables have this name: give each its own", c.Name)
		}
		t, err := New(c)
		if err != nil {
			return nil, err
		}
		m.tables[c.Name] = t
	}
	m.names = slices.Sorted(maps.Keys(m.tables))
	return m, nil
}

// Names are the tables' names, ascending.
func (m *Multi) Names() []string { return slices.Clone(m.names) }

// Table is the table of that name, or an [ErrUnknown] that lists those there are.
func (m *Multi) Table(name string) (*Table, error) {
	if t, ok := m.tables[name]; ok {
		return t, nil
	}
	there := "there is none at all"
	if n := len(m.names); n > 0 {
		there = "there are " + strings.Join(m.names[:min(n, 10)], ", ")
		if n > 10 {
			there += fmt.Sprintf(" and %d more", n-10)
		}
	}
	return nil, fmt.Errorf("%w %q: %s", ErrUnknown, name, there)
}

// Len is the number of rows of all tables.
func (m *Multi) Len() (n int) {
	for _, t := range m.tables {
		n += t.Len()
	}
	return n
}

// Lookup is Table.Lookup of one table, and so are the following.
func (m *Multi) Lookup(name string, ids []int64, out []float32, tags []uint64) (found int, err error) {
	t, err := m.Table(name)
	if err != nil {
		return 0, err
	}
	return t.Lookup(ids, out, tags)
}

// Pool is Table.Pool.
func (m *Multi) Pool(name string, ids []int64, offsets []int32, mode Pooling, out []float32) error {
	t, err := m.Table(name)
	if err != nil {
		return err
	}
	return t.Pool(ids, offsets, mode, out)
}

// LookupEntries is Table.LookupEntries.
func (m *Multi) LookupEntries(name string, ids []int64) (rows []Row, ok []bool, err error) {
	t, err := m.Table(name)
	if err != nil {
		return nil, nil, err
	}
	rows, ok = t.LookupEntries(ids)
	return rows, ok, nil
}

// Optimize is Table.OptimizeAt.
func (m *Multi) Optimize(name string, ids []int64, grads []float32, unixSec uint32, at Rates) error {
	t, err := m.Table(name)
	if err != nil {
		return err
	}
	return t.OptimizeAt(ids, grads, unixSec, at)
}

// Assign is Table.Assign.
func (m *Multi) Assign(name string, ids []int64, values []float32, unixSec uint32, tag uint64) error {
	t, err := m.Table(name)
	if err != nil {
		return err
	}
	return t.Assign(ids, values, unixSec, tag)
}

// AssignAdd is Table.AssignAdd.
func (m *Multi) AssignAdd(name string, ids []int64, values []float32, unixSec uint32, tag uint64) error {
	t, err := m.Table(name)
	if err != nil {
		return err
	}
	return t.AssignAdd(ids, values, unixSec, tag)
}

// Reinitialize is Table.Reinitialize.
func (m *Multi) Reinitialize(name string, ids []int64, unixSec uint32) (had []bool, err error) {
	t, err := m.Table(name)
	if err != nil {
		return nil, err
	}
	return t.Reinitialize(ids, unixSec)
}
