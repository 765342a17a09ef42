package tfevents

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// File is an event file that nobody else writes to.
type File struct {
	*Writer
	file *os.File
}

// Create begins a file in dir, which it makes, under a name that TensorBoard looks for and no earlier file has.
func Create(dir string, at time.Time) (*File, error) {
	host, err := os.Hostname()
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d", at.Unix(), host, at.Nanosecond())
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	w, err := New(f, at)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &File{w, f}, nil
}

// Close ends the file.
func (f *File) Close() error { return f.file.Close() }
