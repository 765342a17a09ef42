package vfs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/internal/durable"
)

// Copying says how files are copied. The zero value is how the original copies by default.
type Copying struct {
	// Workers copy so many files of a tree at once; 0: one.
	Workers int
	// Keep refuses to replace a file: what is there already is [fs.ErrExist]. A tree always replaces
	// the one that is there.
	Keep bool
	// Strict makes an error of a source that is not there; else nothing is copied.
	Strict bool
	// Tries is how often each file is tried; 0: [Tries].
	Tries int
}

const (
	// unfinished begins the names of what is not whole yet.
	unfinished = ".tmp-"
	maxDepth   = 64
)

func beside(path string) string { return Join(Dir(path), unfinished+Base(path)+"-"+rand.Text()) }

// CopyFile copies the file from to the path to, whole or not at all: beside it first, then renamed.
func CopyFile(ctx context.Context, from, to string, how Copying) error {
	src, err := For(from)
	if err != nil {
		return err
	}
	dst, err := For(to)
	if err != nil {
		return err
	}
	return copyFile(ctx, src, dst, from, to, how)
}

// CopyTree copies the folder from with all that is in it to the path to, whole or not at all. The folder that is
// there is replaced: it goes before the new one has its name, so a crash between the two leaves none.
func CopyTree(ctx context.Context, from, to string, how Copying) (err error) {
	src, err := For(from)
	if err != nil {
		return err
	}
	dst, err := For(to)
	if err != nil {
		return err
	}
	info, err := src.Stat(from)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !how.Strict:
		return nil
	case err != nil:
		return fmt.Errorf("copy %s: %w", from, err)
	case !info.IsDir():
		return fmt.Errorf("copy %s: it is a file, of which no tree is made", from)
	}
	if err := dst.MkdirAll(Dir(to)); err != nil {
		return err
	}
	tmp := beside(to)
	defer func() {
		if err != nil {
			err = errors.Join(err, dst.RemoveAll(tmp))
		}
	}()
	g, files := errgroup.WithContext(ctx)
	g.SetLimit(max(how.Workers, 1))
	err = walk(src, dst, from, tmp, 0, func(a, b string) error {
		if files.Err() != nil {
			return files.Err()
		}
		g.Go(func() error { return copyFile(files, src, dst, a, b, Copying{Strict: how.Strict, Tries: how.Tries}) })
		return nil
	})
	if err := errors.Join(g.Wait(), err); err != nil {
		return err
	}
	if err := dst.RemoveAll(to); err != nil {
		return err
	}
	return dst.Rename(tmp, to)
}

// walk makes the folders of a tree anew and hands over its files.
func walk(src, dst FileSystem, from, to string, depth int, file func(from, to string) error) error {
	if depth > maxDepth {
		return fmt.Errorf("copy %s: it is %d folders deep, at most %d are copied", from, depth, maxDepth)
	}
	if err := dst.MkdirAll(to); err != nil {
		return err
	}
	entries, err := src.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		a, b := Join(from, e.Name()), Join(to, e.Name())
		if e.IsDir() {
			err = walk(src, dst, a, b, depth+1, file)
		} else {
			err = file(a, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(ctx context.Context, src, dst FileSystem, from, to string, how Copying) error {
	if how.Tries <= 0 {
		how.Tries = Tries
	}
	err := again(ctx, how.Tries, func() error {
		err := once(ctx, src, dst, from, to, how.Keep)
		if errors.Is(err, errNoSource) && !how.Strict {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w", from, to, err)
	}
	return nil
}

// errNoSource says that the file to copy is not there: another try may find it, as the original hopes.
var errNoSource = errors.New("there is nothing to copy")

// once tries to copy a file.
func once(ctx context.Context, src, dst FileSystem, from, to string, keep bool) (err error) {
	in, err := src.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errNoSource, err)
	}
	if err != nil {
		return err
	}
	defer in.Close() // it was only read
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if keep {
		if _, err := dst.Stat(to); err == nil {
			return fs.ErrExist
		} else if missing(err) != nil {
			return err
		}
	}
	tmp := beside(to)
	out, err := dst.Create(tmp)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, durable.UntilDone(ctx, in))
	if err = errors.Join(err, out.Close()); err == nil && n != info.Size() {
		err = fmt.Errorf("it changed meanwhile: %d bytes where there were %d", n, info.Size())
	}
	if err == nil {
		err = dst.Rename(tmp, to)
	}
	if err != nil {
		return errors.Join(err, dst.RemoveAll(tmp))
	}
	return nil
}
