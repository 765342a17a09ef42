package tfssupervisor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/ckpt"
	"github.com/monolith-go/monolith/internal/layoutfilter"
	"github.com/monolith-go/monolith/projections/layout"
)

// latestOnce is the policy of what must not follow newer versions.
const latestOnce = "latest_once"

// lookEvery is how often a folder is looked at for newer versions.
const lookEvery = time.Second

// layoutOf is the path of a layout in ZooKeeper's tree, and its name in the view. A
// pattern that begins with a slash is the path itself.
func layoutOf(bzid, pattern string) (path, name string, err error) {
	base := "/" + bzid + "/layouts/"
	if pattern == "" {
		return "", "", nil
	}
	if path = pattern; !strings.HasPrefix(pattern, "/") {
		path = base + pattern
	}
	name, ok := strings.CutPrefix(path, base)
	if !ok || name == "" {
		return "", "", fmt.Errorf("tfssupervisor: --layout %q is no layout of this namespace: name one, or give a path below %s", pattern, base)
	}
	return path, name, nil
}

// offers is one look at the layout: what this container should serve of it, by name.
// What was told before stays while there is no newer version, and, where the policy is
// latest_once, for ever; so does what a broken filter or folder would take away.
func (in *instance) offers() []assigned {
	s := in.s
	var offers []layout.Offer
	var undeclared []string
	s.layout.Read(func(l layout.State) { offers, undeclared = l.Offers(s.layoutName) })
	for _, entry := range undeclared {
		in.complain(entry, "the layout offers what nobody has declared: it cannot be served")
	}
	var out []assigned
	for _, o := range offers {
		a := assigned{model: o.Model, sub: o.SubGraph, replica: s.cfg.replica()}
		if _, _, ok := role(a.sub); !ok || !in.accepts(a) {
			continue
		}
		a.basePath = filepath.Clean(o.Config.GetModelBasePath())
		old, had := in.before(a.name())
		had = had && old.basePath == a.basePath
		if !had || o.Config.GetVersionPolicy() != latestOnce {
			a.version = in.newest(a)
		}
		switch {
		case had && a.version <= old.version:
			a = old
		case a.version < 0:
			continue
		}
		out = append(out, a)
	}
	return out
}

// accepts asks the filters. A condition that cannot be computed is told once.
func (in *instance) accepts(a assigned) bool {
	ok, err := in.s.filters.Accept(a.sub)
	if err != nil {
		in.complain(a.name(), err.Error())
	}
	return ok
}

// newest is the newest version in the folder, -1 when there is none.
func (in *instance) newest(a assigned) int64 {
	seen, ok := in.folders[a.basePath]
	if ok && time.Since(seen.at) < lookEvery {
		return seen.version
	}
	seen = sighting{at: time.Now(), version: -1}
	versions, err := ckpt.Versions(a.basePath)
	switch {
	case err != nil:
		in.complain(a.name(), err.Error())
	case len(versions) == 0:
		in.complain(a.name(), "its folder holds no version yet: "+a.basePath)
	default:
		seen.version = slices.Max(versions)
	}
	if in.folders == nil {
		in.folders = map[string]sighting{}
	}
	in.folders[a.basePath] = seen
	return seen.version
}

// sighting is what a folder held when it was looked at last.
type sighting struct {
	at      time.Time
	version int64
}

// complain logs a reason once for each name, until it changes.
func (in *instance) complain(name, reason string) {
	if in.complaints[name] == reason {
		return
	}
	if in.complaints == nil {
		in.complaints = map[string]string{}
	}
	in.complaints[name] = reason
	in.s.env.Log.Warn("not served as the layout says", "model", name, "reason", reason)
}

// compileFilters reads the lines of --layout-filter.
func (c *Config) compileFilters() (layoutfilter.Filters, error) {
	return layoutfilter.Compile(c.LayoutFilters, c.Shard, c.ShardNum)
}
