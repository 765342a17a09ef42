// Package checkpoint writes and reads one parameter-server shard, or one entry model, as a
// directory that is either wholly there or not at all.
//
// A shard directory holds, per table, a TFRecord file of the original's EntryDump in id
// order, one TFRecord file of dense variables, one per admission filter, and
// manifest.json, which names the rest with a checksum each and carries a checksum of
// itself. An export is the same without optimizer slots and filters, and with the model's
// declaration, which says how to serve it.
package checkpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

var (
	// ErrCorrupt: the directory is not what was written. The message names the file.
	ErrCorrupt = errors.New("checkpoint is corrupt")
	// ErrInvalid: what was asked to be written contradicts itself; nothing was written.
	ErrInvalid = errors.New("checkpoint is not valid")
	// ErrNotFinite: a parameter or slot is NaN or infinite, which no table restores; it is
	// an ErrInvalid, too.
	ErrNotFinite = errors.New("a number is not finite")
)

// TableInfo describes one table of a shard. Rows, File and Hash are filled in when
// written, Dim too where there are rows.
type TableInfo struct {
	Name string `json:"name"`
	Dim  int    `json:"dim"`
	Rows uint64 `json:"rows"`
	File string `json:"file"`
	Hash string `json:"hash"` // table.Hasher's, so it equals table.Table.Hash of the live table
	// Clock is the newest time of an update, by which rows expire.
	Clock uint32 `json:"clock,omitempty"`
	// Slots and Opt say how many slots a row has and where they lie in an EntryDump;
	// without Opt all of them are adagrad's norm, as in format 1.
	Slots int    `json:"slots,omitempty"`
	Opt   []Dump `json:"opt,omitempty"`
}

// Dump is optim.Dump as a manifest has it.
type Dump struct {
	Kind   string  `json:"kind"`
	Planes []Plane `json:"planes,omitempty"`
}

// Plane is optim.Plane as a manifest has it.
type Plane struct {
	Name    string `json:"name"`
	From    int    `json:"from"`
	To      int    `json:"to"`
	Integer bool   `json:"integer,omitempty"`
}

// DumpsOf is how a manifest says d.
func DumpsOf(d []optim.Dump) []Dump {
	var out []Dump
	for _, x := range d {
		y := Dump{Kind: x.Kind}
		for _, p := range x.Planes {
			y.Planes = append(y.Planes, Plane(p))
		}
		out = append(out, y)
	}
	return out
}

// Kinds are the kinds of dumps, for messages.
func Kinds(dumps []Dump) []string {
	kinds := make([]string, len(dumps))
	for i, d := range dumps {
		kinds[i] = d.Kind
	}
	return kinds
}

func (t *TableInfo) dumps() []optim.Dump {
	var out []optim.Dump
	for _, x := range t.Opt {
		y := optim.Dump{Kind: x.Kind}
		for _, p := range x.Planes {
			y.Planes = append(y.Planes, optim.Plane(p))
		}
		out = append(out, y)
	}
	return out
}

// FilterInfo describes the state of one table's admission filter.
type FilterInfo struct {
	Table string `json:"table"`
	File  string `json:"file"`
	Bytes uint64 `json:"bytes"`
	Hash  string `json:"hash"` // SHA-256 of the state
}

// BandInfo describes a range of a dense variable that is kept as a vector of its own.
type BandInfo struct {
	Name  string   `json:"name"`
	Shape []uint32 `json:"shape"` // of the variable
	At    int      `json:"at"`    // where in its numbers the band begins
	Size  int      `json:"size"`  // numbers of the band
}

// Manifest is a shard directory's table of contents. WriteShard sets Tables, Variables,
// Shapes, Bands, Filters, Spec, Hash, Files and Sum; the rest is the caller's.
type Manifest struct {
	Format     int               `json:"format"` // 1, 2 with filters, clocks, slot layouts or a spec, 3 with assignments, or 4 with bands
	Job        string            `json:"job"`
	Checkpoint int64             `json:"checkpoint"`
	Shard      uint32            `json:"shard"`
	Shards     uint32            `json:"shards"`
	Epoch      uint64            `json:"epoch"`
	Step       uint64            `json:"step"`
	Turn       uint64            `json:"turn"`
	Generation uint64            `json:"generation"`
	SyncSeq    uint64            `json:"sync_seq"`
	Offsets    map[int32]int64   `json:"offsets"`            // Kafka partition -> next offset to learn
	Assigned   []string          `json:"assigned,omitempty"` // ids of the latest assignments that it holds, oldest first
	Tables     []TableInfo       `json:"tables"`             // by name
	Variables  []string          `json:"variables"`
	Shapes     [][]uint32        `json:"shapes"`            // of Variables
	Bands      []BandInfo        `json:"bands,omitempty"`   // by name and place; of variables that are kept as a whole there are none
	Filters    []FilterInfo      `json:"filters,omitempty"` // by table
	Spec       json.RawMessage   `json:"spec,omitempty"`    // the model's declaration, in exports
	Hash       string            `json:"hash"`              // SHA-256 of parameters and filters alone: equal state, equal hash
	Files      map[string]uint32 `json:"files"`             // name -> CRC-32C
	Sum        string            `json:"sum"`               // SHA-256 of this manifest with Sum empty
}

// Variable is a dense variable. Slots may be empty, as in an export.
type Variable struct {
	Shape  []uint32
	Values []float32
	Slots  []float32
}

// Band is a range of a dense variable, whose shape it has, as a vector of its own.
type Band struct {
	Name string
	At   int // where in the variable's numbers it begins
	Variable
}

// Shard is everything one parameter-server shard knows, in memory.
type Shard struct {
	Manifest Manifest
	Tables   map[string][]table.Row
	Dense    map[string]Variable // those that are kept as a whole
	Bands    []Band              // of the others
	Filters  map[string][]byte   // table -> state of its filter; tables without one are missing
	Spec     *model.ModelSpec    // what the tables were declared as; may be nil
}

// Export is s without filters, assignments and optimizer slots, as serving wants it. Values are shared
// with s.
func Export(s *Shard) *Shard {
	out := &Shard{Manifest: s.Manifest, Spec: s.Spec, Tables: make(map[string][]table.Row, len(s.Tables)), Dense: make(map[string]Variable, len(s.Dense))}
	out.Manifest.Tables, out.Manifest.Assigned = slices.Clone(s.Manifest.Tables), nil
	for i := range out.Manifest.Tables {
		t := &out.Manifest.Tables[i]
		t.Slots, t.Opt, t.Clock = 0, nil, 0
	}
	for name, rows := range s.Tables {
		bare := make([]table.Row, len(rows))
		for i, r := range rows {
			r.Slots = nil
			bare[i] = r
		}
		out.Tables[name] = bare
	}
	for name, v := range s.Dense {
		v.Slots = nil
		out.Dense[name] = v
	}
	for _, b := range s.Bands {
		b.Slots = nil
		out.Bands = append(out.Bands, b)
	}
	return out
}

// Band finds what s has of a dense variable from at on: a band of it, or all of it.
func (s *Shard) Band(name string, at int) (Variable, bool) {
	for _, b := range s.Bands {
		if b.Name == name && b.At == at {
			return b.Variable, true
		}
	}
	v, ok := s.Dense[name]
	return v, ok && at == 0
}

// Join adds to dense the variables of which bands has all numbers, from however many shards.
func Join(dense map[string]Variable, bands []Band) error {
	bands = slices.SortedFunc(slices.Values(bands), compareBands)
	for len(bands) > 0 {
		name, shape := bands[0].Name, bands[0].Shape
		n := slices.IndexFunc(bands, func(b Band) bool { return b.Name != name })
		if n < 0 {
			n = len(bands)
		}
		size, ok := sizeOf(shape)
		if _, twice := dense[name]; !ok || twice {
			return fmt.Errorf("%w: variable %q of shape %v is there as a whole and in bands, or too large", ErrCorrupt, name, shape)
		}
		whole := Variable{Shape: shape, Values: make([]float32, 0, size)}
		for _, b := range bands[:n] {
			if b.At != len(whole.Values) || !slices.Equal(b.Shape, shape) {
				return fmt.Errorf("%w: variable %q has a band of shape %v at %d, where one of %v at %d should follow", ErrCorrupt, name, b.Shape, b.At, shape, len(whole.Values))
			}
			whole.Values = append(whole.Values, b.Values...)
		}
		if len(whole.Values) != size {
			return fmt.Errorf("%w: variable %q of shape %v has bands of %d numbers", ErrCorrupt, name, shape, len(whole.Values))
		}
		dense[name], bands = whole, bands[n:]
	}
	return nil
}

func compareBands(a, b Band) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.At, b.At))
}

// Entry is what the entry sub-model of a version needs besides the shards.
type Entry struct {
	Spec    *model.ModelSpec
	Version int64
	Job     string
	Shards  uint32
	SyncSeq uint64
	Dense   map[string]Variable
	Files   map[string][]byte // more files of the folder, by their paths in it: what other programs read of it
}
