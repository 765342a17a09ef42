package modelmanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/services/internal/modelcopy"
)

// versionDepth is how many folders are above a version in the model's: its sub-model's.
const versionDepth = 1

// bring copies every sub-model of a version, and puts them at their places once all have been copied. What was
// brought before a crash is not copied again.
func (m *Manager) bring(ctx context.Context, version int64) (err error) {
	done, err := m.reading(ctx, version)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	if err := m.whole(version); err != nil {
		return err
	}
	from := m.download(version)
	subs, err := folders(os.DirFS(from), ".")
	if err != nil {
		return err
	}
	if len(subs) == 0 {
		return fmt.Errorf("%s has no sub-models", from)
	}
	var staged []*modelcopy.Staged
	defer func() {
		for _, c := range staged {
			err = errors.Join(err, c.Drop()) // nothing, once it is installed
		}
	}()
	for _, sub := range subs {
		place := filepath.Join(sub, strconv.FormatInt(version, 10))
		if _, err := m.dir.Stat(place); err == nil {
			continue
		}
		c, err := modelcopy.Stage(ctx, filepath.Join(from, place), m.dir, place)
		if err != nil {
			return fmt.Errorf("sub-model %s: %w", sub, err)
		}
		staged = append(staged, c)
	}
	if err := m.whole(version); err != nil { // without manifests nothing else tells that files went meanwhile
		return err
	}
	for _, c := range staged {
		if err := c.Install(); err != nil {
			return err
		}
	}
	return nil
}

// retain removes all versions but the newest ones. Those above newest are of a start before, after which
// their download was taken back.
func (m *Manager) retain(newest int64) error {
	subs, err := folders(m.dir.FS(), ".")
	if err != nil {
		return err
	}
	places := map[int64][]string{}
	for _, sub := range subs {
		names, err := folders(m.dir.FS(), sub)
		if err != nil {
			return err
		}
		for _, name := range names {
			if v, ok := number(name); ok {
				places[v] = append(places[v], filepath.Join(sub, name))
			}
		}
	}
	var kept []int64
	for v := range places {
		if v <= newest {
			kept = append(kept, v)
		}
	}
	slices.Sort(kept)
	for _, v := range kept[max(0, len(kept)-remain):] {
		delete(places, v)
	}
	for _, old := range places {
		for _, place := range old {
			err = errors.Join(err, modelcopy.Remove(m.dir, place))
		}
	}
	return err
}

// folders are those in dir, hidden ones left out.
func folders(fsys fs.FS, dir string) (names []string, err error) {
	entries, err := fs.ReadDir(fsys, dir)
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, err
}
