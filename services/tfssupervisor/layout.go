package tfssupervisor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/server"
	"github.com/monolith-go/monolith/internal/compat/layoutfilter"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/projections/savedmodels"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

const (
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
			moving[o.Model] = declared && moves(config.V.GetVersionPolicy())
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
	var refused []string
	for _, o := range offers {
		a := assigned{model: o.Model, sub: o.SubGraph, replica: s.cfg.replica(), basePath: filepath.Clean(o.Config.GetModelBasePath()), policy: o.Config.GetVersionPolicy()}
		if !in.accepts(a) {
			continue
		}
		p, err := policyOf(a.policy)
		if err == nil {
			err = nameable(a.sub)
		}
		if err != nil {
			refused = append(refused, fmt.Sprintf("%s: %v", a.name(), err))
			in.reject(ctx, a, err.Error())
			continue
		}
		if in.choose(&a, p, moving[o.Model]) {
			out = append(out, a)
		}
	}
	if len(refused) > 0 {
		s.env.Health.Fail(layoutProblem, fmt.Errorf("it cannot be served as a whole: %s", strings.Join(refused, "; ")))
	} else {
		s.env.Health.OK(layoutProblem)
	}
	return out
}

// choose names the version of a by its policy, false while there is none to serve. What was told
// before stays until there is what the policy asks for.
func (in *instance) choose(a *assigned, p policy, moving bool) bool {
	old, told := in.before(a.name())
	told = told && old.basePath == a.basePath
	same := told && old.policy == a.policy
	// Deltas alone do not keep a pinned shard in line with an entry that moves on: that
	// asks for rows of the version it has loaded.
	if same && p.once && !moving {
		*a = old
		return true
	}
	versions := in.versions(*a)
	found := len(versions) > 0
	switch {
	case p.version > 0:
		a.version = p.version
		if found = slices.Contains(versions, p.version); !found {
			in.complain(a.name(), fmt.Sprintf("its folder does not hold version %d, which its policy names: %s", p.version, a.basePath))
		}
	case p.all:
		a.version = anyVersion
	case found:
		if a.version = slices.Max(versions); same {
			a.version = max(a.version, old.version)
		}
	}
	if !found && told {
		*a = old
	}
	return found || told
}

// nameable refuses a sub-graph that no replica can be registered as.
func nameable(sub string) error {
	if _, _, ok := replica.TaskOf(sub); !ok {
		return errors.New("no replica can have its name: export it under one without colons that is not just ps, or leave it out with --layout-filter")
	}
	return nil
}

// reject tells, once, that a sub-graph of the layout is not served.
func (in *instance) reject(ctx context.Context, a assigned, reason string) {
	if in.complain(a.name(), reason) {
		in.s.facts.say(ctx, &server.Event{Body: &server.Event_ModelFailed{ModelFailed: &server.ModelFailed{
			Model: &server.Model{ModelName: a.model, SubModel: a.sub}, Reason: reason}}})
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

// versions are those in the folder.
func (in *instance) versions(a assigned) []int64 {
	seen, ok := in.folders[a.basePath]
	if ok && time.Since(seen.at) < lookEvery {
		return seen.versions
	}
	versions, err := checkpoint.Versions(a.basePath)
	switch {
	case err != nil:
		in.complain(a.name(), err.Error())
	case len(versions) == 0:
		in.complain(a.name(), "its folder holds no version yet: "+a.basePath)
	}
	if in.folders == nil {
		in.folders = map[string]sighting{}
	}
	in.folders[a.basePath] = sighting{at: time.Now(), versions: versions}
	return versions
}

// sighting is what a folder held when it was looked at last.
type sighting struct {
	at       time.Time
	versions []int64
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
