package servables

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// found are the versions of a model on disk, with the time their directories changed.
type found map[int64]time.Time

func scanVersions(m tfserving.Model) found {
	f := found{}
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

// dirTime is when a directory last changed; false if there is none.
func dirTime(dir string) (time.Time, bool) {
	st, err := os.Stat(dir)
	if err != nil || !st.IsDir() {
		return time.Time{}, false
	}
	return st.ModTime(), true
}
