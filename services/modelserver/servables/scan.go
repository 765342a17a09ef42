package servables

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

// found are the versions of a model on disk, with the time their directories changed.
type found map[int64]time.Time

// scanVersions finds those that the policy wants. beside has the shards that lie beside an entry's
// version belong to it: a change of one changes it.
func scanVersions(m tfserving.Model, beside bool) found {
	f := found{}
	modTime := func(name, basePath string, v int64) (time.Time, bool) {
		at, ok := modTime(name, basePath, v)
		if ok && beside {
			at = latest(at, basePath, v)
		}
		return at, ok
	}
	if len(m.Policy.Versions) > 0 {
		for _, v := range m.Policy.Versions {
			if at, ok := modTime(m.Name, m.BasePath, v); ok {
				f[v] = at
			}
		}
		return f
	}
	versions, err := checkpoint.Versions(m.BasePath)
	if err != nil {
		return f // a base path that cannot be read has no versions, as one that is not there
	}
	if !m.Policy.All {
		versions = versions[max(0, len(versions)-max(1, m.Policy.Latest)):]
	}
	for _, v := range versions {
		if at, ok := modTime(m.Name, m.BasePath, v); ok {
			f[v] = at
		}
	}
	return f
}

// modTime finds a version's directory; a serving shard beyond the exported ones has
// none of its own and counts from its siblings'.
func modTime(name, basePath string, v int64) (time.Time, bool) {
	dir := filepath.Join(basePath, strconv.FormatInt(v, 10))
	if at, ok := dirTime(dir); ok {
		return at, true
	}
	if _, _, shard, err := splitName(name); err != nil || shard < 0 {
		return time.Time{}, false
	}
	return dirTime(filepath.Join(filepath.Dir(basePath), "ps_0", strconv.FormatInt(v, 10)))
}

// latest is the latest change of a version's directory, or of one that holds a shard beside it.
func latest(at time.Time, basePath string, v int64) time.Time {
	for k := range rows.MaxShards {
		t, ok := dirTime(filepath.Join(filepath.Dir(basePath), "ps_"+strconv.Itoa(k), strconv.FormatInt(v, 10)))
		if !ok {
			break
		}
		if t.After(at) {
			at = t
		}
	}
	return at
}

// dirTime is when a directory last changed; false if there is none.
func dirTime(dir string) (time.Time, bool) {
	st, err := os.Stat(dir)
	if err != nil || !st.IsDir() {
		return time.Time{}, false
	}
	return st.ModTime(), true
}
