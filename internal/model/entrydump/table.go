package entrydump

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/internal/vfs"
	"github.com/monolith-go/monolith/kernels/table"
)

const (
	// maxRecord holds a row of table.MaxDim with the slots of any optimizer.
	maxRecord = 8 << 20
	// batch is how many rows are put into a table at once.
	batch = 4096
)

// Part is a table and what it was made of.
type Part struct {
	Config table.Config
	Table  *table.Table
	// Expire keeps rows that have expired by the newest update of the table out of the
	// files; the table itself is not changed. Nil: all rows are written.
	Expire *table.Expiry
}

// Options of a save; zero values stand for the defaults named.
type Options struct {
	Shards  int // files; default as ShardCount has it
	Workers int // files written at once; default GOMAXPROCS

	files files
}

// Reading says how files are read.
type Reading struct {
	// Fresh takes rows that say nothing of their optimizers, such as those of a
	// WritableFile; else they are refused.
	Fresh bool
}

// Save writes one table as the set at path, such as
// model.ckpt-7.assets/MonolithHashTable_ab_0. The rows are those of one moment, ascending
// by id over the shards. They are copied before they are written.
func Save(path string, p Part, o Options) error {
	codec, err := CodecOf(p.Config)
	if err != nil {
		return err
	}
	rows := p.rows()
	n := ShardCount(o.Shards, len(rows))
	if n > maxShards {
		return fmt.Errorf("save %s: %d shards: give at most %d", path, n, maxShards)
	}
	dir, base := split(path)
	parts := make([]part, n)
	for i := range parts {
		some := share(rows, i, n)
		parts[i] = part{ShardName(base, i, n), func(w io.Writer) (uint64, error) {
			return uint64(len(some)), appendRows(tfrecord.NewWriter(w), codec, some)
		}}
	}
	if err := writeSet(o.files, o.Workers, dir, base, parts); err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	return nil
}

// rows are those that are to be written.
func (p Part) rows() []table.Row {
	rows := p.Table.Snapshot()
	if p.Expire == nil {
		return rows
	}
	now, kept := p.Table.Newest(), rows[:0]
	for _, r := range rows {
		if !p.Expire.Expired(r.ID, r.UnixSec, now) {
			kept = append(kept, r)
		}
	}
	return kept
}

// share is the i-th of n parts of about one size.
func share(rows []table.Row, i, n int) []table.Row {
	return rows[len(rows)*i/n : len(rows)*(i+1)/n]
}

func appendRows(w *tfrecord.Writer, codec *Codec, rows []table.Row) error {
	var buf []byte
	for _, r := range rows {
		var err error
		if buf, err = codec.Append(buf[:0], r); err != nil {
			return err
		}
		if err := w.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// Restore reads the set at path into a new table of cfg, which the caller puts in the
// place of the one it had: a table is replaced, as by the original, and one whose files
// are damaged stays as it was. Every checksum, every row's length and optimizers are
// verified; fs.ErrNotExist, ErrIncomplete, ErrCorrupt, ErrMismatch and table.ErrFull tell
// the failures apart.
func Restore(path string, cfg table.Config, how Reading) (*table.Table, error) {
	t, err := table.New(cfg)
	if err != nil {
		return nil, err
	}
	in, err := newIntake(t, cfg, how)
	if err != nil {
		return nil, err
	}
	s, err := openSet(split(path))
	if err != nil {
		return nil, fmt.Errorf("restore %s: %w", path, err)
	}
	for i := range s.shards {
		err := s.read(ShardName(s.base, i, s.shards), func(r io.Reader) (rows uint64, err error) {
			records := tfrecord.NewReader(r, maxRecord)
			for ; ; rows++ {
				data, err := records.Next()
				if errors.Is(err, io.EOF) {
					return rows, in.flush()
				}
				if err != nil {
					return rows, fmt.Errorf("record %d: %w", rows, broken(err))
				}
				if err := in.add(data); err != nil {
					return rows, fmt.Errorf("record %d: %w", rows, err)
				}
			}
		})
		if err != nil {
			return nil, fmt.Errorf("restore %w", err)
		}
	}
	if err := in.distinct(); err != nil {
		return nil, fmt.Errorf("restore %s: %w", path, err)
	}
	return t, nil
}

// broken makes ErrCorrupt of what a record reader says of its file.
func broken(err error) error {
	for _, of := range []error{tfrecord.ErrCorrupt, tfrecord.ErrTruncated, tfrecord.ErrTooLarge} {
		if errors.Is(err, of) {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	return err
}

// intake puts encoded rows into a table that was empty, some at a time.
type intake struct {
	t     *table.Table
	codec *Codec
	drops bool // rows of zeros vanish
	rows  []table.Row
	n     int
}

func newIntake(t *table.Table, cfg table.Config, how Reading) (*intake, error) {
	codec, err := CodecOf(cfg)
	if err != nil {
		return nil, err
	}
	codec.Fresh = how.Fresh
	return &intake{t: t, codec: codec, drops: cfg.SkipZero}, nil
}

func (in *intake) add(data []byte) error {
	r, err := in.codec.Decode(data)
	if err != nil {
		return err
	}
	in.n++
	if in.rows = append(in.rows, r); len(in.rows) == batch {
		return in.flush()
	}
	return nil
}

func (in *intake) flush() error {
	err := in.t.Restore(in.rows)
	in.rows = in.rows[:0]
	return err
}

// distinct complains where rows had the id of another one.
func (in *intake) distinct() error {
	if err := in.flush(); err != nil {
		return err
	}
	if got := in.t.Len(); got != in.n && !in.drops {
		return fmt.Errorf("%w: table %s: %d rows have only %d different ids", ErrCorrupt, in.t.Name(), in.n, got)
	}
	return nil
}

// split is the directory and the name of a set.
func split(path string) (dir, base string) {
	if strings.HasSuffix(path, "/") {
		return vfs.Clean(path), "" // a folder is no set
	}
	return vfs.Dir(path), vfs.Base(path)
}
