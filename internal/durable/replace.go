package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// temporary stands behind a file's name, and before a random number, in the name of what is to
// replace it.
const temporary = ".tmp"

// Replace writes the file at path anew, with that mode, and it lasts:
//
//	beside it, fsync | a crash leaves the old file, and rubbish that Sweep removes
//	rename           | the new file, or after a power cut the old one
//	fsync folder     | the new file
//
// What fails leaves the old file and no rubbish.
func Replace(path string, mode fs.FileMode, write func(*os.File) error) error {
	return replace(path, mode, write, Rename)
}

// Swap writes the file at path anew, with that mode: nobody reads half of it. It does not last:
// after a power cut path may be as before, or empty. It suits what every start writes again.
func Swap(path string, mode fs.FileMode, data []byte) error {
	write := func(f *os.File) error { _, err := f.Write(data); return err }
	return replace(path, mode, write, func(f *os.File, path string) error {
		if err := f.Close(); err != nil {
			return errors.Join(err, os.Remove(f.Name()))
		}
		return rename(f, path)
	})
}

// Rename closes f and gives it the name path, in the folder in which it is, and it lasts. What
// fails before f has that name removes it.
func Rename(f *os.File, path string) error {
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err := f.Close(); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := rename(f, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

func rename(f *os.File, path string) error {
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func replace(path string, mode fs.FileMode, write func(*os.File) error, name func(*os.File, string) error) error {
	if err := Sweep(path, time.Now()); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+temporary)
	if err != nil {
		return err
	}
	err = f.Chmod(mode)
	if err == nil {
		err = write(f)
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return name(f, path)
}

// Sweep removes what crashes have left of new files for path. Others may be writing theirs: what
// is younger than an hour stays.
func Sweep(path string, now time.Time) error {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, file := range files {
		if !strings.HasPrefix(file.Name(), base+temporary) {
			continue
		}
		if info, e := file.Info(); e == nil && now.Sub(info.ModTime()) > time.Hour {
			if e := os.Remove(filepath.Join(dir, file.Name())); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}
