package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Folders are where the parts of one job's checkpoints and exports lie, some here, some there: on disks of several
// machines that are mounted here, or brought from them.
type Folders []string

// Beside is these folders behind dir, which the job's facts name.
func (all Folders) Beside(dir string) Folders { return append(Folders{dir}, all...) }

// Of is the first of the folders in which path lies.
func (all Folders) Of(path string) (dir string, err error) {
	for _, dir := range all {
		if _, err := os.Stat(filepath.Join(dir, path)); err == nil {
			return dir, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", nowhere(path, all)
}

// ReadShard reads a shard's part. One that is damaged in a folder, or that fits refuses, is looked for in the next; nil
// takes any.
func (all Folders) ReadShard(path string, fits func(*Shard) error) (*Shard, error) {
	var errs []error
	for _, dir := range all {
		s, err := ReadShardIn(dir, path)
		if err == nil && fits != nil {
			err = fits(s)
		}
		if err == nil {
			return s, nil
		}
		if _, there := os.Stat(filepath.Join(dir, path)); !errors.Is(there, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil, nowhere(path, all)
	}
	return nil, errors.Join(errs...)
}

func nowhere(path string, all Folders) error {
	return fmt.Errorf("%s lies in none of %s: name the folder that has it with --parts, or bring it from the host that has it with monolith checkpoint fetch: %w",
		filepath.ToSlash(path), strings.Join(all, ", "), fs.ErrNotExist)
}
