package tfssupervisor

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/events/server"
	"github.com/monolith-go/monolith/internal/compat/layoutfilter"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/projections/savedmodels"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

const (
	// latestOnce is the policy of what must not follow newer versions.
	latestOnce = "latest_once"
	// entry is the sub-graph that asks the others for rows, of its own version.
	entry = "entry"
	// layoutProblem names what keeps parts of a layout from being served.
	layoutProblem = "layout"
)

// lookEvery is how often a folder is looked at for newer versions.
const lookEvery = time.Second

// layoutOf is the path of a layout in ZooKeeper's tree, and its name in the view. A
// pattern that begins with a slash is the path itself; one outside of the namespace's
// layouts has no name there: whatever nodes lie below it are its entries.
func layoutOf(bzid, pattern string) (path, name string, err error) {
	base := "/" + bzid + "/layouts/"
	if pattern == "" {
		return "", "", nil
	}
	if path = pattern; !strings.HasPrefix(pattern, "/") {
		path = base + pattern
	}
	if slices.ContainsFunc(strings.Split(path[1:], "/"), func(step string) bool { return step == "" || step == "." || step == ".." }) {
		return "", "", fmt.Errorf("tfssupervisor: --layout %q is no path of a node: name a layout, or give a path such as %sl1", pattern, base)
	}
	name, _ = strings.CutPrefix(path, base)
	if name == path {
		return path, "", nil
	}
	return path, name, nil
}

// entries are what the layout names, by the views.
func (s *Supervisor) entries() (offers []savedmodels.Offer, undeclared []string, moving map[string]bool) {
	var nodes []string
	if s.tree != nil {
		s.tree.Read(func(z view.State) { nodes = z.Children(s.layoutPath) })
	}
	moving = map[string]bool{} // models whose entry follows newer versions
	s.layout.Read(func(l savedmodels.State) {
		if s.tree != nil {
			offers, undeclared = l.OffersOf(nodes)
		} else {
			offers, undeclared = l.Offers(s.layoutName)
		}
		for _, o := range offers {
			config, declared := l.Models[o.Model].SavedModels[entry]
			moving[o.Model] = declared && config.V.GetVersionPolicy() != latestOnce
		}
	})
	return offers, undeclared, moving
}

// offers is one look at the layout: what this container should serve of it, by name.
// What was told before stays while there is no newer version, and, where it is pinned, for
// ever; so does what a broken filter or folder would take away.
func (in *instance) offers(ctx context.Context) []assigned {
	s := in.s
	offers, undeclared, moving := s.entries()
	for _, entry := range undeclared {
		in.complain(entry, "the layout offers what nobody has declared: it cannot be served")
	}
	var out []assigned
	var odd []string
	for _, o := range offers {
		a := assigned{model: o.Model, sub: o.SubGraph, replica: s.cfg.replica()}
		if !in.accepts(a) {
			continue
		}
		if _, _, ok := taskOf(a.sub); !ok {
			odd = append(odd, a.name())
			in.reject(ctx, a)
			continue
		}
		a.basePath = filepath.Clean(o.Config.GetModelBasePath())
		old, had := in.before(a.name())
		had = had && old.basePath == a.basePath
		// Deltas alone do not keep a pinned shard in line with an entry that moves on: that
		// asks for rows of the version it has loaded.
		pinned := o.Config.GetVersionPolicy() == latestOnce && !moving[o.Model]
		if !had || !pinned {
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
	if len(odd) > 0 {
		s.env.Health.Fail(layoutProblem, fmt.Errorf("%s cannot be served: %s", strings.Join(odd, ", "), oddName))
	} else {
		s.env.Health.OK(layoutProblem)
	}
	return out
}

// oddName says what is wrong with a sub-graph for which there is no role.
const oddName = "sub-graphs are entry, ps_<n> or dense_<n>; export it under such a name, or leave it out with --layout-filter"

// reject tells, once, that a sub-graph of the layout is not served.
func (in *instance) reject(ctx context.Context, a assigned) {
	if in.complain(a.name(), oddName) {
		in.s.facts.say(ctx, &server.Event{Body: &server.Event_ModelFailed{ModelFailed: &server.ModelFailed{
			Model: &server.Model{ModelName: a.model, SubModel: a.sub}, Reason: oddName}}})
	}
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
	versions, err := checkpoint.Versions(a.basePath)
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

// complain logs a reason once for each name, until it changes; true if it did.
func (in *instance) complain(name, reason string) bool {
	if in.complaints[name] == reason {
		return false
	}
	if in.complaints == nil {
		in.complaints = map[string]string{}
	}
	in.complaints[name] = reason
	in.s.env.Log.Warn("not served as the layout says", "model", name, "reason", reason)
	return true
}

// compileFilters reads the lines of --layout-filter.
func (c *Config) compileFilters() (layoutfilter.Filters, error) {
	return layoutfilter.Compile(c.LayoutFilters, c.Shard, c.ShardNum)
}
