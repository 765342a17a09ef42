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

	"github.com/monolith-go/monolith/internal/durable"
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
	done, err = durable.RLock(ctx, filepath.Join(m.cfg.Source, m.cfg.Model+"@"+strconv.FormatInt(version, 10)+readLock))
	if err != nil {
		return nil, fmt.Errorf("the lock of those who read it: %w; agents need to write to %s", err, m.cfg.Source)
	}
	return done, nil
}

// clearLocks takes away the read locks that agents left which were killed.
func (m *Manager) clearLocks() error {
	entries, err := os.ReadDir(m.cfg.Source)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), m.cfg.Model+"@") && strings.HasSuffix(e.Name(), readLock) {
			err = errors.Join(err, durable.Unlock(filepath.Join(m.cfg.Source, e.Name())))
		}
	}
	return err
}
