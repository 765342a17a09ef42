package modelsync

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
)

// versionDepth is how many folders are above a version in the folder of copies.
const versionDepth = 3

// openDir opens the folder of copies, which is made where it is missing.
func openDir(dir string) (*os.Root, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := durable.SyncDir(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// found looks at the copy at place. It is whole when every file is what its manifest says,
// or, without reading all of that again, when it is still of the export last seen there.
func found(ctx context.Context, root *os.Root, place string, seen *copied) (c copied, whole bool) {
	dir, err := root.OpenRoot(place)
	if err != nil {
		return c, false
	}
	defer dir.Close()
	if c.export, err = checkpoint.Identity(dir.FS()); err != nil {
		return c, false
	}
	if seen != nil && seen.export == c.export {
		return *seen, true
	}
	if checkpoint.VerifyFiles(ctx, dir.FS()) != nil {
		return c, false
	}
	n, err := checkpoint.DirSize(dir.Name())
	c.size = uint64(n)
	return c, err == nil
}

// stored is one version on disk.
type stored struct {
	model, sub  string
	versionsDir string // its folder, below the folder of copies
	version     int64
}

func (c stored) place() string { return filepath.Join(c.versionsDir, strconv.FormatInt(c.version, 10)) }

// list is every version in the folder of copies: <model>/<origin>/<sub-model>/<version>.
// What builds before origins were told apart have left lies one step higher.
func list(root *os.Root) ([]stored, error) {
	var out []stored
	var errs []error
	children := func(dir string) []string {
		entries, err := fs.ReadDir(root.FS(), filepath.ToSlash(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		var names []string
		for _, e := range entries {
			if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
				names = append(names, e.Name())
			}
		}
		return names
	}
	take := func(model, sub, versionsDir string) (some bool) {
		for _, name := range children(versionsDir) {
			if v, err := strconv.ParseInt(name, 10, 64); err == nil && v > 0 && strconv.FormatInt(v, 10) == name {
				out = append(out, stored{model, sub, versionsDir, v})
				some = true
			}
		}
		return some
	}
	for _, model := range children(".") {
		for _, origin := range children(model) {
			below := filepath.Join(model, origin)
			if take(model, origin, below) {
				continue
			}
			for _, sub := range children(below) {
				take(model, sub, filepath.Join(below, sub))
			}
		}
	}
	return out, errors.Join(errs...)
}

// prune removes folders in which no copies are left. Not while one is being made: it may
// just have made its own.
func prune(root *os.Root) {
	for depth := 3; depth > 0; depth-- {
		dirs, err := fs.Glob(root.FS(), strings.Repeat("*/", depth-1)+"*")
		if err != nil {
			return // only for a malformed pattern
		}
		for _, dir := range dirs {
			if info, err := root.Lstat(dir); err == nil && info.IsDir() {
				_ = root.Remove(dir) // fails unless it is empty
			}
		}
	}
}

// parts is every folder that a fetch has not filled yet.
func parts(root *os.Root) ([]string, error) { return fs.Glob(root.FS(), "*/*/*/"+part+"*") }
