package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/kernels/table"
)

// maxSmall bounds manifest.json and spec.json.
const maxSmall = 16 << 20

// folder is the directory of a shard or an entry. No name in it leads anywhere else.
type folder struct {
	root    *os.Root
	dir     string // for messages
	through func(io.Reader) io.Reader
}

func openFolder(base, path string) (*folder, error) {
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	if path == "." {
		return &folder{root: root, dir: base}, nil
	}
	defer root.Close()
	sub, err := root.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("read checkpoint %s: %w", filepath.Join(base, path), err)
	}
	return &folder{root: sub, dir: filepath.Join(base, path)}, nil
}

func (d *folder) open(name string) (*os.File, error) {
	f, err := d.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read checkpoint %s: %w", filepath.Join(d.dir, name), err)
	}
	return f, nil
}

// ReadShard reads what WriteShard wrote and verifies every checksum and hash. A byte
// that differs anywhere is ErrCorrupt, and a missing file fs.ErrNotExist; both name the
// file. Files that the manifest does not name are ignored.
func ReadShard(dir string) (*Shard, error) { return ReadShardIn(dir, ".") }

// ReadShardIn is ReadShard of the folder path below base. Where path, or a symbolic link
// on it, leads out of base, that is an error: paths come from facts, which anybody may put
// on the log.
func ReadShardIn(base, path string) (*Shard, error) {
	d, err := openFolder(base, path)
	if err != nil {
		return nil, err
	}
	defer d.root.Close()
	return d.readShard()
}

// readDense reads the dense variables of s, whose manifest was read, and compares the hash.
func (d *folder) readDense(s *Shard) (err error) {
	m := &s.Manifest
	if s.Dense, s.Bands, err = d.readVariables(m.Files, m.Variables, m.Shapes, m.Bands); err != nil {
		return err
	}
	if sum := contentHash(m.Tables, m.Filters, m.Variables, s.Dense, s.Bands); sum != m.Hash {
		return d.corrupt(ManifestName, fmt.Errorf("the parameters hash to %s where it says %s", sum, m.Hash))
	}
	return nil
}

// readShard holds all that it reads in memory.
func (d *folder) readShard() (*Shard, error) {
	tables := map[string][]table.Row{}
	s, err := d.stream(
		func(s *Shard) error {
			for _, t := range s.Manifest.Tables {
				tables[t.Name] = nil
			}
			return nil
		},
		func(t *TableInfo, rows []table.Row) error {
			tables[t.Name] = append(tables[t.Name], rows...)
			return nil
		})
	if err != nil {
		return nil, err
	}
	s.Tables = tables
	return s, nil
}

// ReadManifest reads and verifies the manifest alone.
func ReadManifest(dir string) (Manifest, error) {
	d, err := openFolder(dir, ".")
	if err != nil {
		return Manifest{}, err
	}
	defer d.root.Close()
	return d.readManifest()
}

func (d *folder) readManifest() (Manifest, error) {
	var m Manifest
	if err := d.readSealed(&m, &m.Sum, func() int { return m.Format }, format, formatMore, formatAsked, formatBands); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// ReadEntry reads what WriteEntry wrote, as ReadShard does.
func ReadEntry(dir string) (*Entry, error) { return Reader{}.Entry(dir) }

// Entry is ReadEntry through r.
func (r Reader) Entry(dir string) (*Entry, error) {
	d, err := openFolder(dir, ".")
	if err != nil {
		return nil, err
	}
	defer d.root.Close()
	d.through = r.Through
	var m entryManifest
	if err := d.readSealed(&m, &m.Sum, func() int { return m.Format }, format); err != nil {
		return nil, err
	}
	text, err := d.readSmall(specName)
	if err != nil {
		return nil, err
	}
	if want, ok := m.Files[specName]; !ok || crc32.Checksum(text, castagnoli) != want {
		return nil, d.corrupt(specName, errors.New("its checksum is not the manifest's"))
	}
	e := &Entry{Spec: &model.ModelSpec{}, Version: m.Version, Job: m.Job, Shards: m.Shards, SyncSeq: m.SyncSeq}
	if err := protojson.Unmarshal(text, e.Spec); err != nil {
		return nil, d.corrupt(specName, err)
	}
	if e.Dense, _, err = d.readVariables(m.Files, m.Variables, m.Shapes, nil); err != nil {
		return nil, err
	}
	if sum := contentHash(nil, nil, m.Variables, e.Dense, nil); sum != m.Hash {
		return nil, d.corrupt(ManifestName, fmt.Errorf("the parameters hash to %s where it says %s", sum, m.Hash))
	}
	e.Files, err = d.readMore(m.Files)
	return e, err
}

// readMore reads an entry's other files.
func (d *folder) readMore(sums map[string]uint32) (map[string][]byte, error) {
	var files map[string][]byte
	for name, want := range sums {
		if name == specName || name == denseName {
			continue
		}
		data, err := d.readSmall(name)
		if err != nil {
			return nil, err
		}
		if crc32.Checksum(data, castagnoli) != want {
			return nil, d.corrupt(name, errors.New("its checksum is not the manifest's"))
		}
		if files == nil {
			files = map[string][]byte{}
		}
		files[name] = data
	}
	return files, nil
}

// Versions lists the version directories of a sub-model, ascending: those whose names
// are numbers. A dir that does not exist has none.
func Versions(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list versions: %w", err)
	}
	var versions []int64
	for _, e := range entries {
		v, err := strconv.ParseInt(e.Name(), 10, 64)
		if e.IsDir() && err == nil && v >= 0 && strconv.FormatInt(v, 10) == e.Name() {
			versions = append(versions, v)
		}
	}
	slices.Sort(versions)
	return versions, nil
}

// DirSize adds up the sizes of all regular files below dir, in bytes. Files that vanish
// meanwhile count nothing.
func DirSize(dir string) (int64, error) {
	var size int64
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				size += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("size of %s: %w", dir, err)
	}
	return size, nil
}

// readSealed reads manifest.json into m. Only the very bytes that seal makes of m pass.
func (d *folder) readSealed(m any, sum *string, version func() int, known ...int) error {
	text, err := d.readSmall(ManifestName)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, m); err != nil {
		return d.corrupt(ManifestName, err)
	}
	if v := version(); !slices.Contains(known, v) {
		return d.corrupt(ManifestName, fmt.Errorf("it is of format %d, this build reads %v", v, known))
	}
	if again, err := seal(m, sum); err != nil || !bytes.Equal(again, text) {
		return d.corrupt(ManifestName, errors.New("its own checksum is wrong"))
	}
	return nil
}

func (d *folder) readVariables(files map[string]uint32, names []string, shapes [][]uint32, infos []BandInfo) (dense map[string]Variable, bands []Band, err error) {
	if len(names)+len(infos) == 0 {
		return map[string]Variable{}, nil, nil
	}
	err = d.readRecords(denseName, files, func(r *tfrecord.Reader) (err error) {
		dense, bands, err = readDense(r, names, shapes, infos)
		return err
	})
	return dense, bands, err
}

// readRecords reads one TFRecord file to its end and compares its CRC-32C.
func (d *folder) readRecords(name string, files map[string]uint32, read func(*tfrecord.Reader) error) error {
	want, ok := files[name]
	if !ok || name != filepath.Base(name) {
		return d.corrupt(ManifestName, fmt.Errorf("it has no checksum of %q", name))
	}
	f, err := d.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	var from io.Reader = f
	if d.through != nil {
		from = d.through(f)
	}
	sum := crc32.New(castagnoli)
	if err := read(tfrecord.NewReader(io.TeeReader(bufio.NewReaderSize(from, 1<<18), sum), maxRecord)); err != nil {
		if taken := new(takeError); errors.As(err, &taken) {
			return taken.err
		}
		return d.corrupt(name, err)
	}
	if got := sum.Sum32(); got != want {
		return d.corrupt(name, fmt.Errorf("its checksum is %08x where the manifest says %08x", got, want))
	}
	return nil
}

func (d *folder) readSmall(name string) ([]byte, error) {
	f, err := d.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSmall+1))
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	if len(text) > maxSmall {
		return nil, d.corrupt(name, fmt.Errorf("it is longer than %d bytes", maxSmall))
	}
	return text, nil
}

func (d *folder) corrupt(name string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrCorrupt, filepath.Join(d.dir, name), err)
}
