package modelmanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// A download of version V of model M lies in the folder M@V, and is whole once the file M@V.write.done lies beside
// it. Who reads it keeps M@V.read.lock there, so that it is not removed meanwhile.
const (
	writeDone = ".write.done"
	readLock  = ".read.lock"
)

// marker is the name of the file that says that a download is whole.
func marker(model, version string) string { return model + "@" + version + writeDone }

// versionOf is the version of model that a marker is of; false: it is none of that model's.
func versionOf(model, name string) (int64, bool) {
	text, ok := strings.CutPrefix(name, model+"@")
	if !ok {
		return 0, false
	}
	if text, ok = strings.CutSuffix(text, writeDone); !ok {
		return 0, false
	}
	return number(text)
}

// number is a version's, as a folder is called.
func number(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == text
}

// downloaded is the newest version whose download is whole; 0: there is none.
func (m *Manager) downloaded() (newest int64, err error) {
	entries, err := os.ReadDir(m.cfg.Source)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, e := range entries {
		if v, ok := versionOf(m.cfg.Model, e.Name()); ok {
			newest = max(newest, v)
		}
	}
	return newest, err
}

// whole says whether the download of a version is.
func (m *Manager) whole(version int64) error {
	name := marker(m.cfg.Model, strconv.FormatInt(version, 10))
	if _, err := os.Stat(filepath.Join(m.cfg.Source, name)); err != nil {
		return fmt.Errorf("its download was taken back: %w", err)
	}
	return nil
}

// download is the folder in which a version's sub-models lie.
func (m *Manager) download(version int64) string {
	return filepath.Join(m.cfg.Source, m.cfg.Model+"@"+strconv.FormatInt(version, 10), m.cfg.Model)
}

// reading keeps the download of a version until done is called. Several agents of a host may read it:
// the last takes the file away.
func (m *Manager) reading(ctx context.Context, version int64) (done func() error, err error) {
	path := filepath.Join(m.cfg.Source, m.cfg.Model+"@"+strconv.FormatInt(version, 10)+readLock)
	for {
		lock := flock.New(path)
		if _, err := lock.TryRLockContext(ctx, 10*time.Millisecond); err != nil {
			return nil, fmt.Errorf("the lock of those who read it: %w; agents need to write to %s", err, m.cfg.Source)
		}
		switch there, err := inPlace(lock); {
		case err != nil:
			return nil, errors.Join(err, lock.Close())
		case !there: // it was taken away meanwhile
			_ = lock.Close()
			continue
		}
		return func() error { return errors.Join(lock.Close(), drop(path)) }, nil
	}
}

// inPlace tells whether the file that lock holds is the one that lies at its path. It may have been removed, and
// made anew by another agent, between its opening and its locking.
func inPlace(lock *flock.Flock) (bool, error) {
	held, err := lock.Stat()
	if err != nil {
		return false, err
	}
	at, err := os.Stat(lock.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(held, at), err
}

// clearLocks takes away the read locks that agents left which were killed.
func (m *Manager) clearLocks() error {
	entries, err := os.ReadDir(m.cfg.Source)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), m.cfg.Model+"@") && strings.HasSuffix(e.Name(), readLock) {
			err = errors.Join(err, drop(filepath.Join(m.cfg.Source, e.Name())))
		}
	}
	return err
}

// drop removes a read lock unless somebody holds it.
func drop(path string) error {
	lock := flock.New(path, flock.SetFlag(os.O_RDONLY)) // where it is gone none is made
	alone, err := lock.TryLock()
	if err == nil && alone {
		err = remove(lock)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, lock.Close())
}

// remove takes away the file that lock holds alone, and no other that lies at its path by now.
func remove(lock *flock.Flock) error {
	if there, err := inPlace(lock); err != nil || !there {
		return err
	}
	return os.Remove(lock.Path())
}
