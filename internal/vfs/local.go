package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/internal/durable"
)

// local is this machine's files.
type local struct{}

func (local) Stat(path string) (fs.FileInfo, error) { return os.Stat(path) }
func (local) Open(path string) (File, error)        { return os.Open(path) }
func (local) MkdirAll(path string) error            { return durable.MkdirAll(path, 0o755) }

func (local) Create(path string) (io.WriteCloser, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	return synced{f}, nil
}

// synced is a file that lasts once it is closed.
type synced struct{ *os.File }

func (s synced) Close() error {
	if err := errors.Join(s.Sync(), s.File.Close()); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(s.Name()))
}

func (local) ReadDir(path string) ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	all := make([]fs.FileInfo, 0, len(entries))
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(path, e.Name())) // what a link leads to
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since, or a link to nothing
		}
		if err != nil {
			return nil, err
		}
		all = append(all, named{info, e.Name()})
	}
	return all, nil
}

// named is a file under the name of the link that leads to it.
type named struct {
	fs.FileInfo
	name string
}

func (n named) Name() string { return n.name }

func (local) Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(to))
}

func (local) RemoveAll(path string) error { return os.RemoveAll(path) }
