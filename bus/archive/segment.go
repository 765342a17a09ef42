package archive

import (
	"bufio"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/durable"
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// file is a segment on its way.
type file struct {
	dir    string
	f      *os.File
	w      *bufio.Writer
	sum    hash.Hash
	at     int64
	block  encoder
	packed bytes.Buffer
	zip    *flate.Writer
	footer Footer
}

// create begins a segment in dir.
func create(dir string) (*file, error) {
	if err := durable.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, "unfinished-*.tmp")
	if err != nil {
		return nil, err
	}
	s := &file{dir: dir, f: f, sum: sha256.New()}
	s.w = bufio.NewWriterSize(io.MultiWriter(f, s.sum), 1<<20)
	if s.zip, err = flate.NewWriter(&s.packed, flate.BestSpeed); err != nil {
		return nil, errors.Join(err, s.abandon())
	}
	s.block.reset()
	if err := s.write([]byte(head)); err != nil {
		return nil, errors.Join(err, s.abandon())
	}
	return s, nil
}

func (s *file) write(b []byte) error {
	_, err := s.w.Write(b)
	s.at += int64(len(b))
	return err
}

// add takes the event that follows the one before.
func (s *file) add(r events.Recorded) error {
	if s.footer.First == 0 {
		s.footer.First, s.footer.Began, s.footer.FirstID = r.Seq, r.Time, r.Header.ID
	} else if r.Seq != s.footer.Last+1 {
		return fmt.Errorf("sequence %d follows %d: the log has a gap", r.Seq, s.footer.Last)
	}
	if err := s.block.add(r); err != nil {
		return err
	}
	s.footer.Last, s.footer.Ended, s.footer.LastID = r.Seq, r.Time, r.Header.ID
	if s.block.size() >= 512<<10 {
		return s.flush()
	}
	return nil
}

// flush writes the block at hand and its original bytes.
func (s *file) flush() error {
	if s.block.count == 0 {
		return nil
	}
	b := Block{Offset: s.at, First: s.block.first, Count: s.block.count}
	if err := s.frame(s.block.block()); err != nil {
		return err
	}
	b.Raw = s.at
	s.packed.Reset()
	s.zip.Reset(&s.packed)
	if _, err := s.zip.Write(s.block.raw); err != nil {
		return err
	}
	if err := s.zip.Close(); err != nil {
		return err
	}
	if err := s.frame(s.packed.Bytes()); err != nil {
		return err
	}
	s.footer.Blocks = append(s.footer.Blocks, b)
	s.block.reset()
	return nil
}

func (s *file) frame(payload []byte) error {
	var h [8]byte
	le.PutUint32(h[:], uint32(len(payload)))
	le.PutUint32(h[4:], crc32.Checksum(payload, castagnoli))
	if err := s.write(h[:]); err != nil {
		return err
	}
	return s.write(payload)
}

// seal puts the segment on disk under its name:
//
//	footer, fsync | a crash leaves a file without a segment's name
//	rename        | it is there or it is not
//	fsync folder  | it stays
func (s *file) seal() (segment, error) {
	fail := func(err error) (segment, error) { return segment{}, errors.Join(err, s.abandon()) }
	if err := s.flush(); err != nil {
		return fail(err)
	}
	if err := s.w.Flush(); err != nil {
		return fail(err)
	}
	s.footer.SHA256 = hex.EncodeToString(s.sum.Sum(nil))
	b, err := json.Marshal(s.footer)
	if err != nil {
		return fail(err)
	}
	b = append(b, ending(b)...)
	if _, err := s.f.Write(b); err != nil {
		return fail(err)
	}
	path := filepath.Join(s.dir, segmentName(s.footer.First, s.footer.Last))
	if err := durable.Rename(s.f, path); err != nil {
		return segment{}, err
	}
	return segment{path, s.footer}, nil
}

// ending stands behind the footer.
func ending(footer []byte) []byte {
	b := le.AppendUint32(nil, uint32(len(footer)))
	b = le.AppendUint32(b, crc32.Checksum(footer, castagnoli))
	return append(b, tail...)
}

// abandon removes what was written.
func (s *file) abandon() error {
	return errors.Join(s.f.Close(), os.Remove(s.f.Name()))
}

// readFooter reads and checks a segment's footer.
func readFooter(path string) (Footer, error) {
	f, err := os.Open(path)
	if err != nil {
		return Footer{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return Footer{}, err
	}
	return parseFooter(f, st.Size())
}

func parseFooter(f io.ReaderAt, size int64) (Footer, error) {
	var out Footer
	damaged := func(why string) (Footer, error) {
		return Footer{}, fmt.Errorf("%w: %s; restore the file, or remove it and what follows it while the log still holds those events", ErrDamaged, why)
	}
	end := make([]byte, 8+len(tail))
	if size < int64(len(head)+len(end)) {
		return damaged("it is too short")
	}
	if _, err := f.ReadAt(end, size-int64(len(end))); err != nil {
		return out, err
	}
	n := int64(le.Uint32(end))
	if string(end[8:]) != tail || n > maxFooter || n > size-int64(len(head)+len(end)) {
		return damaged("its end is not there")
	}
	b := make([]byte, n)
	from := size - int64(len(end)) - n
	if _, err := f.ReadAt(b, from); err != nil {
		return out, err
	}
	if crc32.Checksum(b, castagnoli) != le.Uint32(end[4:]) {
		return damaged("the checksum of its footer does not match")
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return damaged("its footer does not decode")
	}
	next, at := out.First, int64(len(head))
	for _, x := range out.Blocks {
		if x.First != next || x.Count < 1 || x.Offset < at || x.Raw < x.Offset+8 || x.Raw > from-8 {
			return damaged("its footer does not describe it")
		}
		next, at = next+uint64(x.Count), x.Raw+8
	}
	if out.First == 0 || next != out.Last+1 {
		return damaged("its footer does not describe it")
	}
	out.at = from
	return out, nil
}

// readFrame reads the payload at offset.
func readFrame(f io.ReaderAt, offset int64) ([]byte, error) {
	var h [8]byte
	if _, err := f.ReadAt(h[:], offset); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	n := int(le.Uint32(h[:]))
	if n > maxBlock {
		return nil, fmt.Errorf("%w: a block of %d bytes at %d", ErrDamaged, n, offset)
	}
	buf := make([]byte, n)
	if _, err := f.ReadAt(buf, offset+8); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if crc32.Checksum(buf, castagnoli) != le.Uint32(h[4:]) {
		return nil, fmt.Errorf("%w: the checksum of the block at %d does not match", ErrDamaged, offset)
	}
	return buf, nil
}

// unpack reads the original bytes at offset.
func unpack(f io.ReaderAt, offset int64) ([]byte, error) {
	packed, err := readFrame(f, offset)
	if err != nil {
		return nil, err
	}
	z := flate.NewReader(bytes.NewReader(packed))
	raw, err := io.ReadAll(io.LimitReader(z, maxBlock+1))
	if err != nil || len(raw) > maxBlock {
		return nil, fmt.Errorf("%w: original bytes at %d: %w", ErrDamaged, offset, err)
	}
	return raw, z.Close()
}

// verify reads all of a segment.
func verify(s segment) error {
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	footer, err := parseFooter(f, st.Size())
	if err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, footer.at)); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != footer.SHA256 {
		return fmt.Errorf("%w: its SHA-256 does not match", ErrDamaged)
	}
	next, at := footer.First, time.Time{}
	for _, x := range footer.Blocks {
		payload, err := readFrame(f, x.Offset)
		if err != nil {
			return err
		}
		raw, err := unpack(f, x.Raw)
		if err != nil {
			return err
		}
		var found batch
		if err := found.decode(payload, raw, 0, nil); err != nil {
			return err
		}
		for _, r := range found.records {
			if r.Seq != next {
				return fmt.Errorf("%w: sequence %d where %d was due", ErrDamaged, r.Seq, next)
			}
			next, at = next+1, r.Time
		}
	}
	if next != footer.Last+1 || !at.Equal(footer.Ended) {
		return fmt.Errorf("%w: it ends at sequence %d, not at %d", ErrDamaged, next-1, footer.Last)
	}
	return nil
}
