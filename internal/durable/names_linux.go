package durable

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// namesEvery is for how long the name of a new file may be missing on disk, on a file
	// system on which syncing a file does not keep its name.
	namesEvery = 100 * time.Millisecond
	// sameTime is within what two changes of a folder may carry one and the same time.
	sameTime = 50 * time.Millisecond
)

// KeepNames keeps the names of a server's files on disk until ctx ends, for servers that
// sync what they write into a file before they ack, but not the folder in which they begin
// one: this does, shortly after. The first of errors in a row is told.
func KeepNames(ctx context.Context, dir string, tell func(error)) {
	tick := time.NewTicker(namesEvery)
	defer tick.Stop()
	root, told := &folder{path: dir}, false
	for {
		err := root.sync(time.Now())
		if err != nil && !told {
			tell(err)
		}
		told = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// folder is one whose names are kept, with those below it. A folder at rest costs one stat.
type folder struct {
	path   string
	synced time.Time // its time of change when it was last synced; zero: sync it
	below  map[string]*folder
}

// sync puts the names on disk that have changed since the last time. What the server
// removes meanwhile is no error.
func (f *folder) sync(now time.Time) error {
	st, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its parent forgets it
	}
	if err != nil {
		return err
	}
	var errs []error
	if changed := st.ModTime(); !changed.Equal(f.synced) || f.below == nil {
		if err := f.change(); err != nil {
			return err
		}
		f.synced = changed
		if now.Sub(changed) < sameTime { // a later change may not show
			f.synced = time.Time{}
		}
	}
	for _, c := range f.below {
		errs = append(errs, c.sync(now))
	}
	return errors.Join(errs...)
}

// change syncs the folder, and learns which ones are below it.
func (f *folder) change() error {
	err := SyncDir(f.path)
	entries, listed := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(listed, fs.ErrNotExist) {
		return nil
	}
	if err := errors.Join(err, listed); err != nil {
		return err
	}
	below := map[string]*folder{}
	for _, e := range entries {
		switch old := f.below[e.Name()]; {
		case !e.IsDir():
		case old != nil:
			below[e.Name()] = old
		default:
			below[e.Name()] = &folder{path: filepath.Join(f.path, e.Name())}
		}
	}
	f.below = below
	return nil
}
