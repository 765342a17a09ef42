package entrydump

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/internal/vfs"
)

// maxShards is what five digits can name.
const maxShards = 99999

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BaseName is the name of a resource as files bear it: `:` and `/` become `-`.
func BaseName(resource string) string {
	return strings.NewReplacer(":", "-", "/", "-").Replace(resource)
}

// ShardName is the name of shard i of n of a set.
func ShardName(base string, i, n int) string { return fmt.Sprintf("%s-%05d-of-%05d", base, i, n) }

// ShardCount is into how many files rows are written: asked, or where that is not
// positive the original's choice, one for each million rows and four at most.
func ShardCount(asked, rows int) int {
	if asked > 0 {
		return asked
	}
	return min(4, max(1, rows/1_000_000))
}

// sums is the file that says what a set must look like. The original's readers do not
// see it, as its name is not that of a shard.
type sums struct {
	Format int       `json:"format"` // 1
	Files  []fileSum `json:"files"`
	Sum    string    `json:"sum"` // SHA-256 of this with Sum empty
}

type fileSum struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Rows  uint64 `json:"rows"`
	CRC   string `json:"crc32c"`
}

const (
	sumsSuffix = ".sums"
	sumsFormat = 1
	maxSums    = 64 << 20
)

func (s *sums) seal() ([]byte, error) {
	s.Sum = ""
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	h := sha256.Sum256(text)
	s.Sum = hex.EncodeToString(h[:])
	return json.MarshalIndent(s, "", " ")
}

// part is one file of a set: fill writes it and says how many rows went in.
type part struct {
	name string
	fill func(io.Writer) (rows uint64, err error)
}

// writeSet writes the files of the set called base in dir, in stages, of which a crash
// leaves:
//
//  1. every file under a temporary name, on disk: the old set, and rubbish
//  2. the sums get their name: they tell of files that are not there, or not so, and a
//     reader refuses the set
//  3. each file gets its name: the same, until the last one: the new set
//  4. shards of an old set with another count are removed: rubbish until then
//
// So a set that replaces one may leave neither, and whoever must not lose the old one
// gives each save a directory of its own, as checkpoints have. Rubbish is removed by the
// next save. One writer per set at a time.
func writeSet(f files, workers int, dir, base string, parts []part) error {
	if f == nil {
		f = disk{}
	}
	if base == "" || base != filepath.Base(base) || base == "." || base == ".." {
		return fmt.Errorf("%q is no name of a set of files: give one without a path", base)
	}
	if err := f.MkdirAll(dir); err != nil {
		return err
	}
	if err := sweepTemporary(f, dir, base); err != nil {
		return err
	}
	s := sums{Format: sumsFormat, Files: make([]fileSum, len(parts))}
	temp := make([]string, len(parts)+1)
	random := rand.Uint64()
	defer func() {
		for _, name := range temp {
			if name != "" { // else it has got its name
				_ = f.Remove(name) // the next save tries again
			}
		}
	}()
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	var g errgroup.Group
	g.SetLimit(workers)
	for i, p := range parts {
		temp[i] = filepath.Join(dir, fmt.Sprintf("%s-tmp-%d", p.name, random))
		g.Go(func() (err error) {
			s.Files[i], err = writeFile(f, temp[i], p)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	text, err := s.seal()
	if err != nil {
		return err
	}
	sumsName := base + sumsSuffix
	last := len(parts)
	temp[last] = filepath.Join(dir, fmt.Sprintf("%s-tmp-%d", sumsName, random))
	if _, err := writeFile(f, temp[last], part{sumsName, func(w io.Writer) (uint64, error) { _, err := w.Write(text); return 0, err }}); err != nil {
		return err
	}
	name := func(i int, to string) error {
		err := f.Rename(temp[i], filepath.Join(dir, to))
		if err == nil {
			temp[i] = ""
		}
		return err
	}
	if err := name(last, sumsName); err != nil {
		return err
	}
	if err := f.SyncDir(dir); err != nil { // no file may have its name before the sums have
		return err
	}
	for i, p := range parts {
		if err := name(i, p.name); err != nil {
			return err
		}
	}
	if err := f.SyncDir(dir); err != nil {
		return err
	}
	return sweepOld(f, dir, base, s.Files)
}

func writeFile(f files, name string, p part) (fileSum, error) {
	w, err := f.Create(name)
	if err != nil {
		return fileSum{}, err
	}
	defer w.Close()
	crc, size := crc32.New(castagnoli), counter(0)
	b := bufio.NewWriterSize(io.MultiWriter(w, crc, &size), 1<<18)
	rows, err := p.fill(b)
	if err == nil {
		err = b.Flush()
	}
	if err == nil {
		err = w.Sync()
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return fileSum{}, fmt.Errorf("%s: %w", p.name, err)
	}
	return fileSum{Name: p.name, Bytes: int64(size), Rows: rows, CRC: fmt.Sprintf("%08x", crc.Sum32())}, nil
}

type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// sweepTemporary removes what crashed saves of the same set left.
func sweepTemporary(f files, dir, base string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), base)
		if ok && temporary.MatchString(rest) {
			if err := f.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// sweepOld removes shards that belong to no set any more, since the sums name others.
func sweepOld(f files, dir, base string, now []fileSum) error {
	keep := map[string]bool{}
	for _, s := range now {
		keep[s.Name] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), base)
		if ok && shardSuffix.MatchString(strings.TrimPrefix(rest, metaSuffix)) && !keep[e.Name()] {
			if err := f.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

const metaSuffix = ".meta"

var (
	shardSuffix = regexp.MustCompile(`^-(\d{5})-of-(\d{5})$`)
	temporary   = regexp.MustCompile(`^(\.meta)?(-\d{5}-of-\d{5}|\.sums)-tmp-\d+$`)
)

// set is a set that was found: its shards, and what the sums say, if there are any.
type set struct {
	dir, base string
	shards    int
	sums      map[string]fileSum // nil: another program's files
}

// openSet finds the set called base in dir. Names that only begin like one of its files,
// such as those of base+"0" or of a save under way, are others'. fs.ErrNotExist: there is
// none; ErrIncomplete: files of it are missing, or of two saves.
func openSet(dir, base string) (*set, error) {
	s := &set{dir: dir, base: base}
	if err := s.readSums(); err != nil {
		return nil, err
	}
	if s.sums != nil {
		for name := range s.sums {
			m := shardSuffix.FindStringSubmatch(strings.TrimPrefix(strings.TrimPrefix(name, base), metaSuffix))
			if m == nil || !strings.HasPrefix(name, base) {
				return nil, fmt.Errorf("%w: %s names %q, which is no file of the set", ErrCorrupt, filepath.Join(dir, base+sumsSuffix), name)
			}
			s.shards, _ = strconv.Atoi(m[2])
		}
		for i := range s.shards {
			if _, ok := s.sums[ShardName(base, i, s.shards)]; !ok {
				return nil, fmt.Errorf("%w: %s names no %s", ErrCorrupt, filepath.Join(dir, base+sumsSuffix), ShardName(base, i, s.shards))
			}
		}
		for name := range s.sums {
			if _, err := vfs.Stat(vfs.Join(dir, name)); err != nil {
				return nil, fmt.Errorf("%w: %w: bring it back, or take another checkpoint", ErrIncomplete, err)
			}
		}
		return s, nil
	}
	entries, err := vfs.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), base)
		m := shardSuffix.FindStringSubmatch(rest)
		if !ok || m == nil {
			continue
		}
		n, _ := strconv.Atoi(m[2])
		if len(there) > 0 && n != s.shards {
			return nil, fmt.Errorf("%w: %s has shards of %d and of %d: remove those of the older save", ErrIncomplete, filepath.Join(dir, base), s.shards, n)
		}
		there[e.Name()], s.shards = true, n
	}
	if len(there) == 0 {
		return nil, fmt.Errorf("%s-*-of-*: %w", filepath.Join(dir, base), fs.ErrNotExist)
	}
	if len(there) != s.shards {
		for i := range s.shards {
			if name := ShardName(base, i, s.shards); !there[name] {
				return nil, fmt.Errorf("%w: %s is missing, there are %d of %d: bring it back, or take another checkpoint", ErrIncomplete, filepath.Join(dir, name), len(there), s.shards)
			}
		}
		return nil, fmt.Errorf("%w: %s has %d files of %d shards", ErrIncomplete, filepath.Join(dir, base), len(there), s.shards)
	}
	return s, nil
}

// readSums reads the sums, if there are any.
func (s *set) readSums() error {
	path := vfs.Join(s.dir, s.base+sumsSuffix)
	f, err := vfs.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSums+1))
	if err != nil {
		return err
	}
	var said sums
	if err := json.Unmarshal(text, &said); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	if said.Format != sumsFormat {
		return fmt.Errorf("%w: %s has format %d, this program reads %d: restore with the program that wrote it", ErrMismatch, path, said.Format, sumsFormat)
	}
	if again, err := said.seal(); err != nil || !bytes.Equal(again, text) {
		return fmt.Errorf("%w: %s: its own checksum is wrong", ErrCorrupt, path)
	}
	s.sums = map[string]fileSum{}
	for _, x := range said.Files {
		s.sums[x.Name] = x
	}
	return nil
}

// read has visit read one file of the set to its end; rows is what it found.
func (s *set) read(name string, visit func(io.Reader) (rows uint64, err error)) error {
	path := vfs.Join(s.dir, name)
	want, known := s.sums[name]
	if s.sums != nil && !known {
		return fmt.Errorf("%w: %s is not in the sums of its set", ErrIncomplete, path)
	}
	f, err := vfs.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	crc, size := crc32.New(castagnoli), counter(0)
	in := io.TeeReader(bufio.NewReaderSize(f, 1<<18), io.MultiWriter(crc, &size))
	rows, err := visit(in)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	// A record file cut between two records looks whole.
	if got := fmt.Sprintf("%08x", crc.Sum32()); known && (got != want.CRC || int64(size) != want.Bytes || rows != want.Rows) {
		return fmt.Errorf("%w: %s has %d rows in %d bytes of checksum %s, it was written with %d in %d of %s: it was changed, or a later save broke off", ErrCorrupt, path, rows, int64(size), got, want.Rows, want.Bytes, want.CRC)
	}
	return nil
}

// FirstSet is the first of bases that there are files of in dir, complete or not: tables
// that were renamed are looked for under their older names, too.
func FirstSet(dir string, bases ...string) (base string, ok bool) {
	for _, b := range bases {
		if _, err := openSet(dir, b); !errors.Is(err, fs.ErrNotExist) {
			return b, true
		}
	}
	return "", false
}
