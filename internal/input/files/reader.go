package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/monolith-go/monolith/internal/vfs"
)

// What one Fetch brings at most; one larger record still arrives.
const (
	fetchRecords = 1024
	fetchBytes   = 1 << 20
)

// Reader reads a partition of a set. It belongs to one goroutine.
type Reader struct {
	set   *Set
	files []*file

	open  vfs.File
	scan  *scanner
	at    int   // the open file
	next  int64 // record of the partition that scan gives next
	first int64 // record of the partition that the open file begins with
}

// Open returns a reader of a partition, which opens files as it gets to them.
func (s *Set) Open(partition int32) *Reader { return &Reader{set: s, files: s.parts[partition]} }

// Fetch returns the records from offset on, those that one call brings, and the offset behind
// them: offset itself at the partition's end.
func (r *Reader) Fetch(ctx context.Context, offset int64) (records [][]byte, next int64, err error) {
	if err := r.seek(ctx, offset); err != nil {
		return nil, offset, err
	}
	for size := 0; len(records) < fetchRecords && size < fetchBytes; {
		if ctx.Err() != nil {
			return nil, offset, ctx.Err()
		}
		record, err := r.record()
		if errors.Is(err, errEnd) {
			break
		}
		if err != nil {
			return nil, offset, err
		}
		size += len(record)
		records = append(records, bytes.Clone(record))
	}
	return records, r.next, nil
}

// errEnd is the end of the partition.
var errEnd = errors.New("the partition ends here")

// record is the next one, of the next file where this one ends.
func (r *Reader) record() ([]byte, error) {
	for {
		if r.scan == nil {
			if r.at == len(r.files) {
				return nil, errEnd
			}
			if err := r.begin(0); err != nil {
				return nil, err
			}
		}
		f := r.files[r.at]
		if r.next == r.first+f.records { // what was written behind its end since does not count
			r.Close()
			r.at, r.first = r.at+1, r.next
			continue
		}
		record, err := r.scan.next()
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("%s, record %d: %w: %w", f.path, r.next-r.first, ErrChanged, err)
		}
		r.next++
		return record, nil
	}
}

// begin opens the current file at one of the places that its survey kept.
func (r *Reader) begin(place int) error {
	f := r.files[r.at]
	o, err := f.open()
	if err != nil {
		return err
	}
	if place > 0 {
		if _, err := o.Seek(f.index[place], io.SeekStart); err != nil {
			return errors.Join(err, o.Close())
		}
	}
	s, err := r.set.layout.scan(o, r.set.layout.Compression.of(f.path))
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w: %w", f.path, ErrChanged, err), o.Close())
	}
	r.open, r.scan, r.next = o, s, r.first+int64(place)*indexEvery
	return nil
}

// seek makes offset the record that comes next.
func (r *Reader) seek(ctx context.Context, offset int64) error {
	if r.scan != nil && r.next == offset {
		return nil
	}
	r.Close()
	r.at, r.first, r.next = 0, 0, 0
	for r.at < len(r.files) && offset >= r.first+r.files[r.at].records {
		r.first += r.files[r.at].records
		r.at++
	}
	r.next = r.first
	if r.at == len(r.files) {
		if offset > r.first {
			return fmt.Errorf("%w: offset %d was learnt, its files hold %d records", ErrChanged, offset, r.first)
		}
		return nil
	}
	place := 0
	if f := r.files[r.at]; len(f.index) > 0 {
		place = int((offset - r.first) / indexEvery)
	}
	if err := r.begin(place); err != nil {
		return err
	}
	for r.next < offset {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := r.record(); err != nil {
			return err
		}
	}
	return nil
}

// Close lets go of the file that is open; a later Fetch opens it again.
func (r *Reader) Close() {
	if r.scan != nil {
		r.scan.close()
		_ = r.open.Close() // it was only read
		r.scan, r.open = nil, nil
	}
}
