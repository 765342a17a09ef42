package ckpt

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
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/kernels/table"
)

// maxSmall bounds manifest.json and spec.json.
const maxSmall = 16 << 20

// ReadShard reads what WriteShard wrote and verifies every checksum and hash. A byte
// that differs anywhere is ErrCorrupt, and a missing file fs.ErrNotExist; both name the
// file. Files that the manifest does not name are ignored.
func ReadShard(dir string) (*Shard, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	s := &Shard{Manifest: m, Tables: map[string][]table.Row{}}
	for i := range m.Tables {
		t := &m.Tables[i]
		var rows []table.Row
		err := readRecords(dir, t.File, m.Files, func(r *tfrecord.Reader) (err error) {
			rows, err = readTable(r, t)
			return err
		})
		if err != nil {
			return nil, err
		}
		s.Tables[t.Name] = rows
	}
	for i := range m.Filters {
		state, err := readFilter(dir, m.Files, &m.Filters[i])
		if err != nil {
			return nil, err
		}
		if s.Filters == nil {
			s.Filters = map[string][]byte{}
		}
		s.Filters[m.Filters[i].Table] = state
	}
	if len(m.Spec) > 0 {
		s.Spec = new(model.ModelSpec)
		if err := protojson.Unmarshal(m.Spec, s.Spec); err != nil {
			return nil, corrupt(dir, manifestName, err)
		}
	}
	if s.Dense, err = readVariables(dir, m.Files, m.Variables, m.Shapes); err != nil {
		return nil, err
	}
	if sum := contentHash(m.Tables, m.Filters, m.Variables, s.Dense); sum != m.Hash {
		return nil, corrupt(dir, manifestName, fmt.Errorf("the parameters hash to %s where it says %s", sum, m.Hash))
	}
	return s, nil
}

// ReadManifest reads and verifies the manifest alone.
func ReadManifest(dir string) (Manifest, error) {
	var m Manifest
	if err := readSealed(dir, &m, &m.Sum, func() int { return m.Format }, format, formatMore, formatAsked); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// ReadEntry reads what WriteEntry wrote, as ReadShard does.
func ReadEntry(dir string) (*Entry, error) {
	var m entryManifest
	if err := readSealed(dir, &m, &m.Sum, func() int { return m.Format }, format); err != nil {
		return nil, err
	}
	text, err := readSmall(dir, specName)
	if err != nil {
		return nil, err
	}
	if want, ok := m.Files[specName]; !ok || crc32.Checksum(text, castagnoli) != want {
		return nil, corrupt(dir, specName, errors.New("its checksum is not the manifest's"))
	}
	e := &Entry{Spec: &model.ModelSpec{}, Version: m.Version, Job: m.Job, Shards: m.Shards, SyncSeq: m.SyncSeq}
	if err := protojson.Unmarshal(text, e.Spec); err != nil {
		return nil, corrupt(dir, specName, err)
	}
	if e.Dense, err = readVariables(dir, m.Files, m.Variables, m.Shapes); err != nil {
		return nil, err
	}
	if sum := contentHash(nil, nil, m.Variables, e.Dense); sum != m.Hash {
		return nil, corrupt(dir, manifestName, fmt.Errorf("the parameters hash to %s where it says %s", sum, m.Hash))
	}
	return e, nil
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
func readSealed(dir string, m any, sum *string, version func() int, known ...int) error {
	text, err := readSmall(dir, manifestName)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, m); err != nil {
		return corrupt(dir, manifestName, err)
	}
	if v := version(); !slices.Contains(known, v) {
		return corrupt(dir, manifestName, fmt.Errorf("it is of format %d, this build reads %v", v, known))
	}
	said := *sum
	again, err := seal(m, sum)
	if err != nil || *sum != said || !bytes.Equal(again, text) {
		return corrupt(dir, manifestName, errors.New("its own checksum is wrong"))
	}
	return nil
}

func readVariables(dir string, files map[string]uint32, names []string, shapes [][]uint32) (dense map[string]Variable, err error) {
	if len(names) == 0 {
		return map[string]Variable{}, nil
	}
	err = readRecords(dir, denseName, files, func(r *tfrecord.Reader) (err error) {
		dense, err = readDense(r, names, shapes)
		return err
	})
	return dense, err
}

// readRecords reads one TFRecord file to its end and compares its CRC-32C.
func readRecords(dir, name string, files map[string]uint32, read func(*tfrecord.Reader) error) error {
	want, ok := files[name]
	if !ok || name != filepath.Base(name) {
		return corrupt(dir, manifestName, fmt.Errorf("it has no checksum of %q", name))
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("read checkpoint: %w", err)
	}
	defer f.Close()
	sum := crc32.New(castagnoli)
	if err := read(tfrecord.NewReader(io.TeeReader(bufio.NewReaderSize(f, 1<<18), sum), maxRecord)); err != nil {
		return corrupt(dir, name, err)
	}
	if got := sum.Sum32(); got != want {
		return corrupt(dir, name, fmt.Errorf("its checksum is %08x where the manifest says %08x", got, want))
	}
	return nil
}

func readSmall(dir, name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSmall+1))
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	if len(text) > maxSmall {
		return nil, corrupt(dir, name, fmt.Errorf("it is longer than %d bytes", maxSmall))
	}
	return text, nil
}

func corrupt(dir, name string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrCorrupt, filepath.Join(dir, name), err)
}
