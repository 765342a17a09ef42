package checkpoint

import (
	"bufio"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/kernels/table"
)

const (
	format      = 1
	formatMore  = 2 // of manifests that say more than the first format could
	formatAsked = 3 // of those that name assignments
	formatBands = 4 // of those of variables in bands
	// ManifestName is the file that names all others of a folder.
	ManifestName = "manifest.json"
	denseName    = "dense.tfrecord"
	specName     = "spec.json"
)

// WriteShard writes s as directory dir and returns the manifest as written. Parents are
// made. The files are written and synced under a temporary name beside dir and renamed
// at the end, so a crash leaves the old dir, or none, and never half a one; a dir that
// exists is replaced. What an earlier crash left beside dir is removed. One writer per
// dir at a time.
//
// A table's dim is taken from Manifest.Tables or else from its first row; a table named
// there without rows is written empty. Rows are put in id order where they are not.
// Contradictions (two rows of one id, rows of different sizes, a shape that is not the
// size of its values) are ErrInvalid.
func WriteShard(dir string, s *Shard) (Manifest, error) { return writeShard(dir, s, replaceDir) }

// CreateShard is WriteShard for a dir that must not exist: one that does, or comes to while
// the files are written, is fs.ErrExist and stays as it is. So a process that was paused
// and wakes behind its successor takes nothing away from it.
func CreateShard(dir string, s *Shard) (Manifest, error) { return writeShard(dir, s, createDir) }

func writeShard(dir string, s *Shard, put func(dir string, fill func(tmp string) error) error) (Manifest, error) {
	m := s.Manifest
	m.Format = format
	m.Files = map[string]uint32{}
	infos, err := tableInfos(s)
	if err != nil {
		return Manifest{}, err
	}
	m.Variables, m.Shapes, err = variableInfos(s.Dense)
	if err != nil {
		return Manifest{}, err
	}
	bands, err := bandInfos(s, &m)
	if err != nil {
		return Manifest{}, err
	}
	if m.Filters, err = filterInfos(s); err != nil {
		return Manifest{}, err
	}
	m.Spec = nil
	if s.Spec != nil {
		if m.Spec, err = specText(s.Spec); err != nil {
			return Manifest{}, err
		}
	}
	more := len(m.Filters) > 0 || len(m.Spec) > 0
	for _, t := range infos {
		more = more || len(t.Opt) > 0 || t.Slots > 0 || t.Clock > 0
	}
	if more {
		m.Format = formatMore
	}
	if len(m.Assigned) > 0 {
		m.Format = formatAsked
	}
	if len(m.Bands) > 0 {
		m.Format = formatBands
	}
	err = put(dir, func(tmp string) error {
		for i := range infos {
			t := &infos[i]
			rows, err := ordered(t, s.Tables[t.Name])
			if err != nil {
				return err
			}
			if m.Files[t.File], err = writeRecords(tmp, t.File, func(w *tfrecord.Writer) error { return writeTable(w, t, rows) }); err != nil {
				return err
			}
		}
		if len(m.Variables)+len(bands) > 0 {
			var err error
			if m.Files[denseName], err = writeRecords(tmp, denseName, func(w *tfrecord.Writer) error { return writeDense(w, m.Variables, s.Dense, bands) }); err != nil {
				return err
			}
		}
		for i := range m.Filters {
			f := &m.Filters[i]
			var err error
			if m.Files[f.File], err = writeRecords(tmp, f.File, func(w *tfrecord.Writer) error { return writeFilter(w, s.Filters[f.Table]) }); err != nil {
				return err
			}
		}
		m.Tables = infos
		m.Hash = contentHash(m.Tables, m.Filters, m.Variables, s.Dense, bands)
		text, err := seal(&m, &m.Sum)
		if err != nil {
			return err
		}
		return writeFile(tmp, ManifestName, func(w io.Writer) error { _, err := w.Write(text); return err })
	})
	if err != nil {
		return Manifest{}, fmt.Errorf("write checkpoint %s: %w", dir, err)
	}
	return m, nil
}

// entryManifest is an entry directory's manifest.json.
type entryManifest struct {
	Format    int               `json:"format"`
	Version   int64             `json:"version"`
	Job       string            `json:"job"`
	Shards    uint32            `json:"shards"`
	SyncSeq   uint64            `json:"sync_seq"`
	Variables []string          `json:"variables"`
	Shapes    [][]uint32        `json:"shapes"`
	Hash      string            `json:"hash"`
	Files     map[string]uint32 `json:"files"`
	Sum       string            `json:"sum"`
}

// WriteEntry writes e as directory dir, with WriteShard's promises.
func WriteEntry(dir string, e *Entry) error {
	if e.Spec == nil {
		return fmt.Errorf("%w: an entry needs its model spec", ErrInvalid)
	}
	m := entryManifest{Format: format, Version: e.Version, Job: e.Job, Shards: e.Shards, SyncSeq: e.SyncSeq, Files: map[string]uint32{}}
	var err error
	if m.Variables, m.Shapes, err = variableInfos(e.Dense); err != nil {
		return err
	}
	spec, err := specText(e.Spec)
	if err != nil {
		return err
	}
	err = replaceDir(dir, func(tmp string) error {
		m.Files[specName] = crc32.Checksum(spec, castagnoli)
		if err := writeFile(tmp, specName, func(w io.Writer) error { _, err := w.Write(spec); return err }); err != nil {
			return err
		}
		if len(m.Variables) > 0 {
			var err error
			if m.Files[denseName], err = writeRecords(tmp, denseName, func(w *tfrecord.Writer) error { return writeDense(w, m.Variables, e.Dense, nil) }); err != nil {
				return err
			}
		}
		if err := writeMore(tmp, e.Files, m.Files); err != nil {
			return err
		}
		m.Hash = contentHash(nil, nil, m.Variables, e.Dense, nil)
		text, err := seal(&m, &m.Sum)
		if err != nil {
			return err
		}
		return writeFile(tmp, ManifestName, func(w io.Writer) error { _, err := w.Write(text); return err })
	})
	if err != nil {
		return fmt.Errorf("write entry %s: %w", dir, err)
	}
	return nil
}

// writeMore writes an entry's other files, and tells sums of them.
func writeMore(tmp string, files map[string][]byte, sums map[string]uint32) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if len(files[name]) > maxSmall {
			return fmt.Errorf("%w: %s has %d bytes, %d are kept beside an entry", ErrInvalid, name, len(files[name]), maxSmall)
		}
		if _, ours := sums[name]; ours || name == ManifestName || name != filepath.Clean(name) || !filepath.IsLocal(name) {
			return fmt.Errorf("%w: %q is no name of a further file", ErrInvalid, name)
		}
		dir := filepath.Dir(filepath.Join(tmp, name))
		if err := durable.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := writeFile(tmp, name, func(w io.Writer) error { _, err := w.Write(files[name]); return err }); err != nil {
			return err
		}
		if err := durable.SyncDir(dir); err != nil {
			return err
		}
		sums[name] = crc32.Checksum(files[name], castagnoli)
	}
	return nil
}

// specText is spec as one line of JSON, the same in every build.
func specText(spec *model.ModelSpec) ([]byte, error) {
	text, err := modelspec.Text(spec)
	if err != nil {
		return nil, fmt.Errorf("%w: model spec: %w", ErrInvalid, err)
	}
	return text, nil
}

// tableInfos lists the tables by name, with dim, row count and file name.
func tableInfos(s *Shard) ([]TableInfo, error) {
	dims, said := map[string]int{}, map[string]TableInfo{}
	for name, rows := range s.Tables {
		if len(rows) > 0 {
			dims[name] = len(rows[0].Values)
		} else {
			dims[name] = 0
		}
	}
	for _, t := range s.Manifest.Tables {
		if d := dims[t.Name]; d != 0 && t.Dim != 0 && d != t.Dim {
			return nil, fmt.Errorf("%w: table %q is declared with dim %d and has rows of %d", ErrInvalid, t.Name, t.Dim, d)
		}
		if t.Dim != 0 {
			dims[t.Name] = t.Dim
		}
		said[t.Name] = t
	}
	infos := make([]TableInfo, 0, len(dims))
	for i, name := range slices.Sorted(maps.Keys(dims)) {
		if dims[name] < 1 || dims[name] > table.MaxDim {
			return nil, fmt.Errorf("%w: table %q has no rows and no dim: name its dim in Manifest.Tables", ErrInvalid, name)
		}
		infos = append(infos, TableInfo{
			Name: name, Dim: dims[name], Rows: uint64(len(s.Tables[name])), File: fmt.Sprintf("table-%05d.tfrecord", i),
			Clock: said[name].Clock, Slots: said[name].Slots, Opt: said[name].Opt,
		})
	}
	return infos, nil
}

// variableInfos lists the variables by name, with their shapes.
func variableInfos(dense map[string]Variable) (names []string, shapes [][]uint32, err error) {
	for _, name := range slices.Sorted(maps.Keys(dense)) {
		v := dense[name]
		if size, ok := sizeOf(v.Shape); !ok || size != len(v.Values) {
			return nil, nil, fmt.Errorf("%w: variable %q of shape %v has %d values", ErrInvalid, name, v.Shape, len(v.Values))
		}
		if !finite(v.Values) || !finite(v.Slots) {
			return nil, nil, fmt.Errorf("%w: %w: variable %q holds it", ErrInvalid, ErrNotFinite, name)
		}
		names = append(names, name)
		shapes = append(shapes, v.Shape)
	}
	return names, shapes, nil
}

// bandInfos returns the bands by name and place, and tells m of them.
func bandInfos(s *Shard, m *Manifest) ([]Band, error) {
	bands := slices.SortedFunc(slices.Values(s.Bands), compareBands)
	m.Bands = nil
	for i, b := range bands {
		size, ok := sizeOf(b.Shape)
		_, whole := s.Dense[b.Name]
		switch {
		case !ok || whole || b.At < 0 || len(b.Values) == 0 || b.At > size-len(b.Values):
			return nil, fmt.Errorf("%w: a band of %d values at %d of variable %q of shape %v", ErrInvalid, len(b.Values), b.At, b.Name, b.Shape)
		case i > 0 && bands[i-1].Name == b.Name && bands[i-1].At+len(bands[i-1].Values) > b.At:
			return nil, fmt.Errorf("%w: two bands have what is at %d of variable %q", ErrInvalid, b.At, b.Name)
		case !finite(b.Values) || !finite(b.Slots):
			return nil, fmt.Errorf("%w: %w: variable %q holds it", ErrInvalid, ErrNotFinite, b.Name)
		}
		m.Bands = append(m.Bands, BandInfo{Name: b.Name, Shape: b.Shape, At: b.At, Size: len(b.Values)})
	}
	return bands, nil
}

func finite(v []float32) bool {
	for _, x := range v {
		if x-x != 0 {
			return false
		}
	}
	return true
}

// sizeOf is the product of shape, unless it is beyond what is kept in one variable.
func sizeOf(shape []uint32) (int, bool) {
	size := uint64(1)
	for _, d := range shape {
		size *= uint64(d) // both below 2^32, so the product is exact
		if size > maxVariable {
			return 0, false
		}
	}
	return int(size), true
}

// ordered returns rows ascending by id, checked.
func ordered(t *TableInfo, rows []table.Row) ([]table.Row, error) {
	byID := func(a, b table.Row) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	}
	if !slices.IsSortedFunc(rows, byID) {
		rows = slices.SortedFunc(slices.Values(rows), byID)
	}
	for i, r := range rows {
		switch {
		case i > 0 && rows[i-1].ID == r.ID:
			return nil, fmt.Errorf("%w: table %q has id %d twice", ErrInvalid, t.Name, r.ID)
		case len(r.Values) != t.Dim:
			return nil, fmt.Errorf("%w: table %q: id %d has %d values where dim is %d", ErrInvalid, t.Name, r.ID, len(r.Values), t.Dim)
		case len(r.Slots) != len(rows[0].Slots):
			return nil, fmt.Errorf("%w: table %q: id %d has %d slots where id %d has %d", ErrInvalid, t.Name, r.ID, len(r.Slots), rows[0].ID, len(rows[0].Slots))
		case !finite(r.Values) || !finite(r.Slots):
			return nil, fmt.Errorf("%w: %w: table %q: id %d holds it", ErrInvalid, ErrNotFinite, t.Name, r.ID)
		}
	}
	return rows, nil
}

// writeRecords writes one TFRecord file and returns its CRC-32C.
func writeRecords(dir, name string, fill func(*tfrecord.Writer) error) (crc uint32, err error) {
	sum := crc32.New(castagnoli)
	err = writeFile(dir, name, func(w io.Writer) error { return fill(tfrecord.NewWriter(io.MultiWriter(w, sum))) })
	return sum.Sum32(), err
}

// writeFile makes dir/name, filled and synced.
func writeFile(dir, name string, fill func(io.Writer) error) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<18)
	if err := fill(w); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Close()
}
