// Package modelcopy puts folders of models at their places, so that what lies there is whole or not there.
package modelcopy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
)

const (
	// maxDepth bounds folders within folders of one sub-model; exports have two.
	maxDepth = 32
	// Unfinished begins the names of folders that are not whole yet, or on their way out; a start sweeps them.
	Unfinished = ".tmp-"
)

// Staged is a whole copy that lies beside its place.
type Staged struct {
	Export string // the identity of what was exported; "" for a folder without a manifest
	Size   uint64

	root       *os.Root
	tmp, place string
}

// Stage copies the folder source into a temporary one beside place, below root, verifies and syncs it.
// Install puts it at its place; without that, Drop removes it.
func Stage(ctx context.Context, source string, root *os.Root, place string) (c *Staged, err error) {
	src, err := os.OpenRoot(source) // itself may be a link: what it names was asked for
	if err != nil {
		return nil, fmt.Errorf("the source cannot be read: %w", err)
	}
	defer src.Close()
	parent := filepath.Dir(place)
	if err := MakeDirs(root, parent); err != nil {
		return nil, err
	}
	c = &Staged{root: root, tmp: filepath.Join(parent, Unfinished+filepath.Base(place)+"-"+rand.Text()), place: place}
	if err := root.Mkdir(c.tmp, 0o755); err != nil {
		return nil, err
	}
	if err := c.fill(ctx, src); err != nil {
		return nil, errors.Join(err, c.Drop())
	}
	return c, nil
}

// fill copies src into the temporary folder.
func (c *Staged) fill(ctx context.Context, src *os.Root) error {
	dst, err := c.root.OpenRoot(c.tmp)
	if err != nil {
		return err
	}
	defer dst.Close()
	if c.Size, err = copyTree(ctx, src, dst, ".", 0); err != nil {
		return err
	}
	if err := checkpoint.VerifyFiles(ctx, dst.FS()); err != nil {
		return fmt.Errorf("the copy of %s is not what was exported: %w", src.Name(), err)
	}
	c.Export, err = checkpoint.Identity(dst.FS())
	return err
}

// Install puts the copy at its place. Stopped anywhere, place is whole, as it was, or not there.
func (c *Staged) Install() error { return Install(c.root, c.tmp, c.place) }

// Drop removes a copy that was not installed.
func (c *Staged) Drop() error { return c.root.RemoveAll(c.tmp) }

// Install renames the whole folder tmp to place, beside it. What lies there is damaged, or of an
// export that was made anew under this name; it comes back where tmp cannot take its place.
func Install(root *os.Root, tmp, place string) error {
	aside := filepath.Join(filepath.Dir(place), Unfinished+filepath.Base(place)+"-"+rand.Text()+"-old")
	err := root.Rename(place, aside)
	replaces := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := root.Rename(tmp, place); err != nil {
		if replaces {
			err = errors.Join(err, root.Rename(aside, place))
		}
		return err
	}
	return errors.Join(syncDir(root, filepath.Dir(place)), root.RemoveAll(aside))
}

// Remove takes a copy away so that nobody sees half of it.
func Remove(root *os.Root, place string) error {
	parent := filepath.Dir(place)
	gone := filepath.Join(parent, Unfinished+"gone-"+rand.Text())
	if err := root.Rename(place, gone); err != nil {
		return err
	}
	return errors.Join(syncDir(root, parent), root.RemoveAll(gone))
}

// Sweep clears what earlier runs left unfinished beside versions, which lie at most depth folders below root.
func Sweep(root *os.Root, depth int) error {
	var left []string
	err := fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !e.IsDir():
			return nil
		case strings.HasPrefix(e.Name(), Unfinished):
			left = append(left, path)
			return fs.SkipDir
		case strings.Count(path, "/") >= depth: // a version: whole
			return fs.SkipDir
		}
		return nil
	})
	errs := []error{err}
	for _, path := range slices.Backward(left) {
		errs = append(errs, root.RemoveAll(path))
	}
	return errors.Join(errs...)
}

// copyTree copies the folder dir with what is in it. A link to a file within the source is
// copied as that file. A link that leaves the source would put files of the machine into
// a model, and one to a folder may have no end: both are refused.
func copyTree(ctx context.Context, src, dst *os.Root, dir string, depth int) (size uint64, err error) {
	if depth > maxDepth {
		return 0, fmt.Errorf("%s is %d folders deep, at most %d are copied", filepath.Join(src.Name(), dir), depth, maxDepth)
	}
	children, err := fs.ReadDir(src.FS(), filepath.ToSlash(dir))
	if err != nil {
		return 0, err
	}
	for _, c := range children {
		name := filepath.Join(dir, c.Name())
		info, err := src.Stat(name)
		var n uint64
		switch {
		case err != nil:
			return 0, fmt.Errorf("%s: %w", filepath.Join(src.Name(), name), err)
		case info.Mode().IsRegular():
			n, err = copyFile(ctx, src, dst, name)
		case !info.IsDir():
			err = fmt.Errorf("%s is neither a file nor a folder", filepath.Join(src.Name(), name))
		case c.Type()&fs.ModeSymlink != 0:
			err = fmt.Errorf("%s is a link to a folder: export the folder itself", filepath.Join(src.Name(), name))
		default:
			if err = dst.Mkdir(name, 0o755); err == nil {
				n, err = copyTree(ctx, src, dst, name, depth+1)
			}
		}
		if err != nil {
			return 0, err
		}
		size += n
	}
	return size, syncDir(dst, dir)
}

func copyFile(ctx context.Context, src, dst *os.Root, name string) (size uint64, err error) {
	in, err := src.Open(name)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return 0, err
	}
	out, err := dst.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	n, err := io.Copy(out, durable.UntilDone(ctx, in))
	if err != nil {
		return 0, fmt.Errorf("copy %s: %w", in.Name(), err)
	}
	if n != info.Size() {
		return 0, fmt.Errorf("%s changed while it was copied: %d bytes where there were %d", in.Name(), n, info.Size())
	}
	return uint64(n), out.Sync()
}

// MakeDirs is MkdirAll, with every new name on disk before it returns.
func MakeDirs(root *os.Root, dir string) error {
	if info, err := root.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := MakeDirs(root, parent); err != nil {
			return err
		}
	}
	if err := root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(root, parent)
}

// syncDir is durable.SyncDir for a folder below root.
func syncDir(root *os.Root, dir string) error {
	return durable.SyncDir(filepath.Join(root.Name(), dir))
}
