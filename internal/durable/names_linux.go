package natsserver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/internal/durable"
)

const (
	// namesEvery is for how long the name of a new file may be missing on disk, on a file
	// system on which syncing a file does not keep its name.
	namesEvery = 100 * time.Millisecond
	// sameTime is within what two changes of a folder may carry one and the same time.
	sameTime = 50 * time.Millisecond
)

// syncNames keeps the names of the server's files on disk until ctx ends. nats-server
// syncs what it writes into a block before it acks, but not the folder in which it begins
// a block; this does, shortly after.
func syncNames(ctx context.Context, cfg Config) {
	tick := time.NewTicker(namesEvery)
	defer tick.Stop()
	root, told := &folder{path: cfg.Dir}, false
	for {
		err := root.sync(time.Now())
		if err != nil && !told {
			cfg.tell(err, "names of new files are not put on disk: a power cut may take them; trying on")
		}
		told = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// folder is one of the server's, with those below it. A folder at rest costs one stat.
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
	err := durable.SyncDir(f.path)
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
