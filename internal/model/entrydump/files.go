package entrydump

import (
	"io"
	"os"

	"github.com/monolith-go/monolith/internal/durable"
)

// files is what writing needs of a file system; tests have it fail and crash.
type files interface {
	MkdirAll(dir string) error
	Create(name string) (file, error) // refuses one that exists
	Rename(from, to string) error
	Remove(name string) error
	SyncDir(dir string) error
}

type file interface {
	io.Writer
	Sync() error
	Close() error
}

// disk is the real one.
type disk struct{}

func (disk) MkdirAll(dir string) error { return durable.MkdirAll(dir, 0o755) }

func (disk) Create(name string) (file, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}

func (disk) Rename(from, to string) error { return os.Rename(from, to) }
func (disk) Remove(name string) error     { return os.Remove(name) }
func (disk) SyncDir(dir string) error     { return durable.SyncDir(dir) }
