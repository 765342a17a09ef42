package checkpoint

import (
	"io"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/kernels/table"
)

// chunkFloats is about how many numbers of rows are in memory at once while a table is streamed.
const chunkFloats = 1 << 18

// chunkOf is how many rows of so many numbers are handed over at once.
func chunkOf(floats int) int { return min(max(chunkFloats/max(floats, 1), 1), 4096) }

// Reader reads directories with a say in how their files are read.
type Reader struct {
	// Through wraps each file of records, as to keep it to a rate; nil: it is read as it is.
	Through func(io.Reader) io.Reader
}

// Shard reads what WriteShard wrote, like ReadShard, but hands the rows of its tables to take, some at a
// time, instead of returning them: what it holds in memory does not grow with them. begin hears of the
// manifest and the declaration before the first row. take keeps no slice of what it gets. Only when Shard
// returns no error is what take got what was written: who takes rows must be able to forget them.
func (r Reader) Shard(dir string, begin func(s *Shard) error, take func(t *TableInfo, rows []table.Row) error) (*Shard, error) {
	d, err := openFolder(dir, ".")
	if err != nil {
		return nil, err
	}
	defer d.root.Close()
	d.through = r.Through
	return d.stream(begin, take)
}

func (d *folder) stream(begin func(*Shard) error, take func(*TableInfo, []table.Row) error) (*Shard, error) {
	m, err := d.readManifest()
	if err != nil {
		return nil, err
	}
	s := &Shard{Manifest: m}
	if len(m.Spec) > 0 {
		s.Spec = new(model.ModelSpec)
		if err := protojson.Unmarshal(m.Spec, s.Spec); err != nil {
			return nil, d.corrupt(ManifestName, err)
		}
	}
	if err := begin(s); err != nil {
		return nil, err
	}
	for i := range m.Tables {
		t := &m.Tables[i]
		err := d.readRecords(t.File, m.Files, func(r *tfrecord.Reader) error {
			return readTable(r, t, func(rows []table.Row) error { return take(t, rows) })
		})
		if err != nil {
			return nil, err
		}
	}
	for i := range m.Filters {
		state, err := d.readFilter(m.Files, &m.Filters[i])
		if err != nil {
			return nil, err
		}
		if s.Filters == nil {
			s.Filters = map[string][]byte{}
		}
		s.Filters[m.Filters[i].Table] = state
	}
	if err := d.readDense(s); err != nil {
		return nil, err
	}
	return s, nil
}

// takeError is what whoever takes rows said, which says nothing about the files.
type takeError struct{ err error }

func (e *takeError) Error() string { return e.err.Error() }
