package entrydump

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/model/monolithpb"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/kernels/table"
)

// maxTables bounds the tables of a set, and maxName their names.
const (
	maxTables = 1 << 20
	maxName   = 1 << 16
)

// SaveMulti writes several tables as the set at path, such as
// model.ckpt-7.assets/MonolithMultiHashTable_0: in each shard a part of every table, by
// name, as one stream of records in snappy frames, and beside it how many are whose. The
// rows of each table are those of one moment; whoever needs one moment for all of them
// keeps writers away.
func SaveMulti(path string, tables []Part, o Options) error {
	tables = slices.SortedFunc(slices.Values(tables), func(a, b Part) int { return cmp.Compare(a.Config.Name, b.Config.Name) })
	codecs, rows, total := make([]*Codec, len(tables)), make([][]table.Row, len(tables)), 0
	for i, p := range tables {
		if i > 0 && tables[i-1].Config.Name == p.Config.Name {
			return fmt.Errorf("save %s: two tables are called %q: give each its own name", path, p.Config.Name)
		}
		var err error
		if codecs[i], err = CodecOf(p.Config); err != nil {
			return err
		}
		rows[i] = p.rows()
		total += len(rows[i])
	}
	n := ShardCount(o.Shards, total)
	if n > maxShards {
		return fmt.Errorf("save %s: %d shards: give at most %d", path, n, maxShards)
	}
	dir, base := split(path)
	var parts []part
	for i := range n {
		data := part{ShardName(base, i, n), func(w io.Writer) (count uint64, err error) {
			f := newFramer(w)
			records := tfrecord.NewWriter(f)
			for j := range tables {
				some := share(rows[j], i, n)
				if err := appendRows(records, codecs[j], some); err != nil {
					return 0, err
				}
				count += uint64(len(some))
			}
			return count, f.Flush()
		}}
		meta := part{ShardName(base+metaSuffix, i, n), func(w io.Writer) (uint64, error) {
			records := tfrecord.NewWriter(w)
			for j, p := range tables {
				b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&monolithpb.MultiHashTableMetadata{
					TableName: proto.String(p.Config.Name), NumEntries: proto.Uint64(uint64(len(share(rows[j], i, n)))),
				})
				if err != nil {
					return 0, err
				}
				if err := records.Write(b); err != nil {
					return 0, err
				}
			}
			return uint64(len(tables)), nil
		}}
		parts = append(parts, data, meta)
	}
	if err := writeSet(o.files, o.Workers, dir, base, parts); err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	return nil
}

// Restored is what RestoreMulti made.
type Restored struct {
	Tables  map[string]*table.Table // new ones, by name: one for each configuration
	Skipped []string                // in the files, of no configuration
	Absent  []string                // of a configuration, not in the files
}

// RestoreMulti reads the set at path into new tables of configs. They hold what the files
// hold, and beside that the rows of old, tables by name, that the files do not have: the
// original restores into tables as they are, and this leaves them alone until all is
// known to be good. old may be nil. Failures are told apart as by Restore.
func RestoreMulti(path string, configs []table.Config, old map[string]*table.Table, how Reading) (*Restored, error) {
	out := &Restored{Tables: map[string]*table.Table{}}
	intakes := map[string]*intake{}
	for _, cfg := range configs {
		t, err := table.New(cfg)
		if err != nil {
			return nil, err
		}
		if out.Tables[cfg.Name] != nil {
			return nil, fmt.Errorf("restore %s: two tables are called %q: give each its own name", path, cfg.Name)
		}
		out.Tables[cfg.Name] = t
		if intakes[cfg.Name], err = newIntake(t, cfg, how); err != nil {
			return nil, err
		}
	}
	s, err := openSet(split(path))
	if err != nil {
		return nil, fmt.Errorf("restore %s: %w", path, err)
	}
	found := map[string]bool{}
	for i := range s.shards {
		counts, err := s.counts(i)
		if err != nil {
			return nil, fmt.Errorf("restore %w", err)
		}
		err = s.read(ShardName(s.base, i, s.shards), func(r io.Reader) (uint64, error) {
			return readShard(tfrecord.NewReader(newUnframer(r), maxRecord), counts, intakes)
		})
		if err != nil {
			return nil, fmt.Errorf("restore %w", err)
		}
		for _, c := range counts {
			found[c.name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(out.Tables)) {
		if err := intakes[name].distinct(); err != nil {
			return nil, fmt.Errorf("restore %s: %w", path, err)
		}
		if !found[name] {
			out.Absent = append(out.Absent, name)
		}
		if old[name] != nil {
			if err := carry(out.Tables[name], old[name]); err != nil {
				return nil, fmt.Errorf("restore %s: keep the rows there were: %w", path, err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if out.Tables[name] == nil {
			out.Skipped = append(out.Skipped, name)
		}
	}
	return out, nil
}

// MultiNames are the tables of the set at path, as its first meta file has them.
func MultiNames(path string) ([]string, error) {
	s, err := openSet(split(path))
	if err != nil {
		return nil, err
	}
	counts, err := s.counts(0)
	names := make([]string, len(counts))
	for i, c := range counts {
		names[i] = c.name
	}
	return names, err
}

// count is how many records of a shard are a table's.
type count struct {
	name string
	n    uint64
}

// counts reads the meta file of shard i.
func (s *set) counts(i int) (counts []count, err error) {
	err = s.read(ShardName(s.base+metaSuffix, i, s.shards), func(r io.Reader) (uint64, error) {
		records, seen := tfrecord.NewReader(r, maxName), map[string]bool{}
		for {
			data, err := records.Next()
			if errors.Is(err, io.EOF) {
				return uint64(len(counts)), nil
			}
			if err != nil {
				return 0, fmt.Errorf("record %d: %w", len(counts), broken(err))
			}
			var m monolithpb.MultiHashTableMetadata
			if err := proto.Unmarshal(data, &m); err != nil {
				return 0, fmt.Errorf("record %d: %w: %w", len(counts), ErrCorrupt, err)
			}
			if m.TableName == nil || m.NumEntries == nil || seen[m.GetTableName()] || len(counts) == maxTables {
				return 0, fmt.Errorf("%w: record %d names no table, or one again: %q", ErrCorrupt, len(counts), m.GetTableName())
			}
			seen[m.GetTableName()] = true
			counts = append(counts, count{m.GetTableName(), m.GetNumEntries()})
		}
	})
	return counts, err
}

// readShard reads exactly the records that counts tell of. Those of tables without an
// intake are passed over, once their checksum is known to be right.
func readShard(records *tfrecord.Reader, counts []count, intakes map[string]*intake) (rows uint64, err error) {
	for _, c := range counts {
		in := intakes[c.name]
		for k := range c.n {
			data, err := records.Next()
			if errors.Is(err, io.EOF) {
				return rows, fmt.Errorf("%w: it ends after %d of the %d rows of table %s that its meta file tells of", ErrCorrupt, k, c.n, c.name)
			}
			if err != nil {
				return rows, fmt.Errorf("record %d: %w", rows, broken(err))
			}
			rows++
			if in == nil {
				continue
			}
			if err := in.add(data); err != nil {
				return rows, fmt.Errorf("table %s: record %d: %w", c.name, rows-1, err)
			}
		}
	}
	if _, err := records.Next(); !errors.Is(err, io.EOF) {
		if err != nil {
			return rows, broken(err)
		}
		return rows, fmt.Errorf("%w: it goes on behind the %d rows that its meta file tells of", ErrCorrupt, rows)
	}
	return rows, nil
}

// carry adds the rows of from that to does not have.
func carry(to, from *table.Table) error {
	for after, more := int64(table.NoID), true; more; {
		var rows []table.Row
		if rows, more = from.Rows(after, batch); len(rows) == 0 {
			return nil
		}
		after = rows[len(rows)-1].ID
		ids := make([]int64, len(rows))
		for i := range rows {
			ids[i] = rows[i].ID
		}
		_, there := to.LookupEntries(ids)
		kept := rows[:0]
		for i, r := range rows {
			if !there[i] {
				kept = append(kept, r)
			}
		}
		if err := to.Restore(kept); err != nil {
			return err
		}
	}
	return nil
}
