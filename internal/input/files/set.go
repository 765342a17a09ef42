package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/internal/vfs"
)

// indexEvery is how many records lie between two whose places are kept, so that reading on in the
// middle of a file that is not packed does not begin at its front.
const indexEvery = 4096

// file is one that was surveyed.
type file struct {
	path    string
	size    int64
	changed time.Time
	records int64
	sum     [sha256.Size]byte // of its bytes
	index   []int64           // the byte at which record i*indexEvery begins; nil: packed
}

// Set is the surveyed files of a job.
type Set struct {
	layout Layout
	parts  [][]*file
	ends   []int64 // by partition
	hash   string
	// Of one epoch.
	files          int
	records, bytes int64
}

// Survey reads every byte of the files, each once, and shares them among at most so many
// partitions: as many as there are files, if these are fewer.
func Survey(ctx context.Context, layout Layout, paths []string, partitions int) (*Set, error) {
	all := make([]*file, len(paths))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, path := range paths {
		g.Go(func() (err error) {
			all[i], err = layout.survey(ctx, path)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	n := min(max(partitions, 1), len(all))
	s := &Set{layout: layout, parts: make([][]*file, n), ends: make([]int64, n), files: len(all)}
	sum := sha256.New()
	fmt.Fprintf(sum, "monolith files 1\n%s %s %d\n", layout.Format, layout.Container, n)
	for i, f := range all {
		fmt.Fprintf(sum, "%d %d %x\n", f.size, f.records, f.sum)
		s.parts[i%n] = append(s.parts[i%n], f)
		s.ends[i%n] += f.records
		s.bytes += f.size
		s.records += f.records
	}
	s.hash = hex.EncodeToString(sum.Sum(nil))
	return s, nil
}

// survey reads one file.
func (l Layout) survey(ctx context.Context, path string) (*file, error) {
	f, err := vfs.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file, and could not be read again after a restart", path)
	}
	out := &file{path: path, size: info.Size(), changed: info.ModTime()}
	sum, packed := sha256.New(), l.Compression.of(path)
	raw := io.TeeReader(f, sum)
	s, err := l.scan(raw, packed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer s.close()
	for ctx.Err() == nil {
		at := s.at()
		_, err := s.next()
		if errors.Is(err, io.EOF) && !errors.Is(err, ErrDamaged) {
			if _, err := io.Copy(io.Discard, raw); err != nil { // what stands behind the packed stream
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			sum.Sum(out.sum[:0])
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s, record %d, from byte %d on: %w: mend the file or leave it out", path, out.records, at, err)
		}
		if packed == None && out.records%indexEvery == 0 {
			out.index = append(out.index, at)
		}
		out.records++
	}
	return nil, ctx.Err()
}

// Hash tells this set from every other one: by how the files are read, how many partitions share
// them, and their order and bytes. Their names and places are not in it.
func (s *Set) Hash() string { return s.hash }

// Partitions is how many there are.
func (s *Set) Partitions() int32 { return int32(len(s.parts)) }

// End is the number of records of a partition in all epochs: the offset behind its last one.
func (s *Set) End(partition int32) int64 { return s.ends[partition] }

// Files is how many there are.
func (s *Set) Files() int { return s.files }

// Records is the number of records in all files, each counted once.
func (s *Set) Records() int64 { return s.records }

// Bytes is the size of all files, as they lie there.
func (s *Set) Bytes() int64 { return s.bytes }

// open opens a file that was surveyed, if it is still the same.
func (f *file) open() (vfs.File, error) {
	r, err := vfs.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrChanged, err)
	}
	if err != nil {
		return nil, err
	}
	info, err := r.Stat()
	if err == nil && (info.Size() != f.size || !info.ModTime().Equal(f.changed)) {
		err = fmt.Errorf("%w: %s had %d bytes and was written at %s, now it has %d, from %s: bring it back, or train under another job name", ErrChanged,
			f.path, f.size, f.changed.UTC().Format(time.RFC3339Nano), info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano))
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Place is the file in which a partition's record stands, and its number there, from 0.
func (s *Set) Place(partition int32, offset int64) (path string, record int64) {
	for _, f := range s.parts[partition] {
		if offset < f.records {
			return f.path, offset
		}
		offset -= f.records
	}
	return "", offset
}
