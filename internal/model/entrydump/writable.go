package entrydump

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/kernels/table"
)

// WritableFile is a file that a running model writes: text, or rows as EntryDump
// records. It is safe for concurrent use; what one call appends stays together.
//
// It is written in place, from the beginning. After a crash it holds a beginning of what
// was appended, whose last record may be cut, as every reader of record files notices;
// after Close all of it is on disk.
type WritableFile struct {
	mu     sync.Mutex
	name   string
	f      *os.File
	w      *bufio.Writer
	buf    []byte
	err    error // of the first write that failed: the file ends there
	closed bool
}

// NewWritableFile makes the file, and the directories above it, or empties the one there
// is.
func NewWritableFile(name string) (*WritableFile, error) {
	d := disk{}
	if err := d.MkdirAll(filepath.Dir(name)); err != nil {
		return nil, fmt.Errorf("open %s for writing: %w", name, err)
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := d.SyncDir(filepath.Dir(name)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &WritableFile{name: name, f: f, w: bufio.NewWriterSize(f, 1<<16)}, nil
}

// Append adds content as it is.
func (f *WritableFile) Append(content string) error {
	return f.append(func(b []byte) ([]byte, error) { return append(b, content...), nil })
}

// AppendEntryDump adds one EntryDump record for each id: its weights are bias[i] and then
// its share of embedding, which is cut into len(ids) parts of one size. No optimizer and
// no time is written. Slices that do not fit together are refused, and nothing is added.
func (f *WritableFile) AppendEntryDump(ids []int64, bias, embedding []float32) error {
	n := len(ids)
	switch {
	case n == 0:
		return fmt.Errorf("append to %s: no ids: give one or more", f.name)
	case len(bias) != n:
		return fmt.Errorf("append to %s: %d biases for %d ids: give one for each", f.name, len(bias), n)
	case len(embedding)%n != 0:
		return fmt.Errorf("append to %s: an embedding of %d numbers for %d ids: give the same for each", f.name, len(embedding), n)
	case len(embedding)/n >= table.MaxDim:
		return fmt.Errorf("append to %s: embeddings of %d numbers: give at most %d", f.name, len(embedding)/n, table.MaxDim-1)
	}
	dim := len(embedding) / n
	return f.append(func(b []byte) ([]byte, error) {
		out := appender{b}
		records := tfrecord.NewWriter(&out)
		var data []byte
		for i, id := range ids {
			data = appendID(data[:0], id)
			data = appendFloats(data, fieldNum, bias[i:i+1])
			data = appendFloats(data, fieldNum, embedding[i*dim:(i+1)*dim])
			if err := records.Write(data); err != nil {
				return out.b, err
			}
		}
		return out.b, nil
	})
}

type appender struct{ b []byte }

func (a *appender) Write(b []byte) (int, error) {
	a.b = append(a.b, b...)
	return len(b), nil
}

func (f *WritableFile) append(make func([]byte) ([]byte, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("append to %s: %w: open it again, which empties it", f.name, fs.ErrClosed)
	}
	if f.err != nil {
		return f.err
	}
	b, err := make(f.buf[:0])
	if err != nil {
		return err
	}
	if f.buf = b; cap(b) > 1<<20 {
		f.buf = nil
	}
	if _, err := f.w.Write(b); err != nil {
		f.err = fmt.Errorf("append to %s: %w", f.name, err)
	}
	return f.err
}

// Close brings everything to disk. It says so if an append before it failed. Closing again
// does nothing and returns the same.
func (f *WritableFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return f.err
	}
	f.closed = true
	if f.err == nil {
		f.err = f.w.Flush()
	}
	if f.err == nil {
		f.err = f.f.Sync()
	}
	if err := f.f.Close(); f.err == nil {
		f.err = err
	}
	if f.err != nil {
		f.err = fmt.Errorf("close %s: %w", f.name, f.err)
	}
	return f.err
}

// FileCloseHook closes files at the end of a session.
type FileCloseHook struct{ files []*WritableFile }

// NewFileCloseHook takes the files of a session; none of them may be nil.
func NewFileCloseHook(files []*WritableFile) (*FileCloseHook, error) {
	for i, f := range files {
		if f == nil {
			return nil, fmt.Errorf("file %d of the close hook is nil: open it first", i)
		}
	}
	return &FileCloseHook{append([]*WritableFile(nil), files...)}, nil
}

// End closes every file, all of them even when one fails, and joins what went wrong.
// Files that are closed already are left alone.
func (h *FileCloseHook) End() error {
	var errs []error
	for _, f := range h.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
