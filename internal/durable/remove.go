package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveAll deletes the folder dir below root. It hides it under a name that nobody reads before it empties it,
// so that a crash leaves no half of it; calling it again deletes what was hidden. What is not there is deleted.
func RemoveAll(root *os.Root, dir string) error {
	gone := filepath.Join(filepath.Dir(dir), ".deleted-"+filepath.Base(dir))
	if err := root.RemoveAll(gone); err != nil {
		return err
	}
	err := root.Rename(dir, gone)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return root.RemoveAll(gone)
}
