// Package durable makes changes of a folder last.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// SyncDir puts on disk which names a folder holds: what was created, renamed or removed
// in it before. Without it a crash may undo a rename whose file was synced.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// MkdirAll is os.MkdirAll with every folder that it makes synced into its parent. Folders
// that are there already are taken for durable: whoever made them did the same.
func MkdirAll(dir string, perm fs.FileMode) error {
	dir = filepath.Clean(dir)
	if st, err := os.Stat(dir); err == nil {
		if !st.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: errors.New("it is a file")}
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent == dir {
		return os.Mkdir(dir, perm)
	}
	if err := MkdirAll(parent, perm); err != nil {
		return err
	}
	if err := os.Mkdir(dir, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncDir(parent)
}
