package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/monolith-go/monolith/internal/durable"
)

// replaceDir makes dir anew: fill writes into a temporary directory beside it, which
// then takes its name. The stages and what a crash leaves at each:
//
//  1. temporary directory being filled: dir as before, rubbish beside it
//  2. an existing dir and the temporary one exchange names, in one step where the
//     system can: dir is new, rubbish beside it; elsewhere the old one is first moved
//     aside, and a crash between the two renames leaves dir missing
//  3. the parent is synced: dir is new for good
//
// Rubbish is removed by the next call for the same dir.
func replaceDir(dir string, fill func(tmp string) error) error {
	return putDir(dir, fill, func(tmp, dir string) error {
		if _, err := os.Lstat(dir); err == nil {
			return exchange(tmp, dir)
		}
		return os.Rename(tmp, dir)
	})
}

// createDir is replaceDir for a dir that must not exist.
func createDir(dir string, fill func(tmp string) error) error {
	exists := &fs.PathError{Op: "create", Path: dir, Err: fs.ErrExist}
	if _, err := os.Lstat(dir); err == nil {
		return exists
	}
	return putDir(dir, fill, func(tmp, dir string) error {
		err := renameNew(tmp, dir)
		if errors.Is(err, fs.ErrExist) {
			return exists
		}
		return err
	})
}

func putDir(dir string, fill func(tmp string) error, name func(tmp, dir string) error) error {
	dir = filepath.Clean(dir)
	parent, base := filepath.Split(dir)
	if parent == "" {
		parent = "."
	}
	if base == "" || base == "." || base == ".." {
		return fmt.Errorf("%w: %q cannot be replaced: name a directory in another", ErrInvalid, dir)
	}
	if err := durable.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	prefix := ".tmp-" + base + "-"
	if err := sweep(parent, prefix); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // the new one until renamed, then the old one
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := fill(tmp); err != nil {
		return err
	}
	if err := durable.SyncDir(tmp); err != nil {
		return err
	}
	if err := name(tmp, dir); err != nil {
		return err
	}
	return durable.SyncDir(parent)
}

// sweep removes what crashed calls for the same dir left: names that start with prefix
// and go on in digits.
func sweep(parent, prefix string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), prefix)
		if ok && digits(rest) {
			if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func digits(s string) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// renameOver is renameNew for systems without one: what is in the way must not be empty.
func renameOver(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrExist}
	}
	return os.Rename(from, to)
}

// swap exchanges two names in three steps, for systems without one.
func swap(a, b string) error {
	aside := a + "0" // still a name that sweep removes
	if err := os.Rename(b, aside); err != nil {
		return err
	}
	if err := os.Rename(a, b); err != nil {
		return errors.Join(err, os.Rename(aside, b))
	}
	return os.Rename(aside, a)
}
