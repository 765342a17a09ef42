package jobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/vfs"
)

// carriers copy so many files at once.
const carriers = 4

// staged is a folder that a command fills. What fills it syncs and exchanges names as only a disk here
// does; so a folder of HDFS is filled here first, and its parts are carried there one after the other, each
// copied whole beside its place before it has its name.
type staged struct {
	to   string // as the user named it
	here string // where it is filled
}

// stage makes the place in which to is filled; close removes it, if it is not to itself.
func stage(to string) (*staged, error) {
	abs, err := vfs.Abs(to)
	if err != nil || !vfs.Remote(to) {
		return &staged{to: abs, here: abs}, err
	}
	tmp, err := os.MkdirTemp("", "monolith-staged-")
	if err != nil {
		return nil, fmt.Errorf("make a folder in which what goes to %s is written first (TMPDIR): %w", to, err)
	}
	return &staged{to: abs, here: tmp}, nil
}

// carry brings parts, which are paths below it, to their places in that order. A part that is there is an
// error before any is carried.
func (s *staged) carry(ctx context.Context, parts ...string) error {
	if s.here == s.to {
		return nil
	}
	for _, part := range parts {
		if err := s.free(part); err != nil {
			return err
		}
	}
	return s.replace(ctx, parts...)
}

// free is an error where part is at its place.
func (s *staged) free(part string) error {
	path := vfs.Join(s.to, part)
	if _, err := vfs.Stat(path); err == nil {
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// replace is carry of parts that may be there.
func (s *staged) replace(ctx context.Context, parts ...string) error {
	if s.here == s.to {
		return nil
	}
	for _, part := range parts {
		from, to := vfs.Join(s.here, part), vfs.Join(s.to, part)
		info, err := os.Stat(from)
		if err != nil {
			return err
		}
		if info.IsDir() {
			err = vfs.CopyTree(ctx, from, to, vfs.Copying{Workers: carriers, Strict: true})
		} else {
			err = vfs.CopyFile(ctx, from, to, vfs.Copying{Strict: true})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fetch brings files that may be at the place here, to be written on.
func (s *staged) fetch(ctx context.Context, names ...string) error {
	if s.here == s.to {
		return nil
	}
	for _, name := range names {
		if err := vfs.CopyFile(ctx, vfs.Join(s.to, name), vfs.Join(s.here, name), vfs.Copying{}); err != nil {
			return err
		}
	}
	return nil
}

func (s *staged) close() error {
	if s.here == s.to {
		return nil
	}
	return os.RemoveAll(s.here)
}

// onDisk refuses a folder of HDFS for what only a disk here can hold.
func onDisk(flag, dir string) error {
	if vfs.Remote(dir) {
		return fmt.Errorf("%w: --%s %s: a job's log and live checkpoints are synced to a disk before they are answered for, which HDFS does not promise: name a folder here, and carry the model there with export --to or checkpoint export --to", flags.ErrUsage, flag, dir)
	}
	return nil
}
