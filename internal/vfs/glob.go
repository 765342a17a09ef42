package vfs

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// Glob is the files and folders that a pattern names, in the order of their names: * and ? and [a-z]
// stand for letters of one name, as [path.Match] has them.
func Glob(pattern string) ([]string, error) {
	at, err := For(pattern)
	if err != nil {
		return nil, err
	}
	return glob(at, pattern)
}

func glob(at FileSystem, pattern string) ([]string, error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, err
	}
	if !strings.ContainsAny(pattern, `*?[\`) {
		_, err := at.Stat(pattern)
		if err == nil {
			return []string{pattern}, nil
		}
		return nil, missing(err)
	}
	dir, name := Dir(pattern), Base(pattern)
	if dir == pattern {
		return nil, nil
	}
	folders, err := glob(at, dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, folder := range folders {
		entries, err := at.ReadDir(folder)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if ok, _ := path.Match(name, e.Name()); ok {
				found = append(found, Join(folder, e.Name()))
			}
		}
	}
	return found, nil
}

// missing is err, unless it says that nothing is there.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
