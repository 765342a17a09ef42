package modelsync

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
)

// target is one copy that has to lie on this host.
type target struct {
	model, sub string
	version    int64
	source     string // the sub-model's folder in the export
	seq        uint64 // of the Planned that wants it
}

// aggregate is where facts about the copy on host go.
func (t target) aggregate(host string) string { return t.model + "/" + t.sub + "/" + host }

func (t target) key(host string) string { return lineage.CopyKey(t.model, t.sub, t.version, host) }

// under is the copy's place: <dir>/<model>/<sub-model>/<version>.
func (t target) under(dir string) string {
	return filepath.Join(dir, t.model, t.sub, strconv.FormatInt(t.version, 10))
}

// check refuses what would leave the folder of copies, or copy it into itself.
func (t target) check(dir string) error {
	for _, name := range []string{t.model, t.sub} {
		if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, `/\`) || !filepath.IsLocal(name) {
			return fmt.Errorf("%q cannot name a folder: plan models and sub-models by plain names", name)
		}
	}
	if t.version <= 0 {
		return fmt.Errorf("version %d is not an exported one", t.version)
	}
	if !filepath.IsAbs(t.source) {
		return fmt.Errorf("source %q is not absolute: plan whole paths", t.source)
	}
	if rel, err := filepath.Rel(dir, t.source); err == nil && filepath.IsLocal(rel) {
		return fmt.Errorf("source %s lies in the folder of copies %s: give model-sync a folder of its own", t.source, dir)
	}
	return nil
}

// wanted lists every sub-model that a plan in force puts anywhere, once each, sorted.
// The version is the plan's; its path ends in it.
func wanted(p plan.State) []target {
	seen := map[string]bool{}
	var out []target
	for name, x := range p.Plans {
		for _, a := range x.Planned.V.GetAssignments() {
			for sub, source := range a.GetSubModels() {
				t := target{model: name, sub: sub, version: x.Planned.V.GetVersion(), source: source, seq: x.PlannedSeq}
				if k := t.key(""); !seen[k] {
					seen[k] = true
					out = append(out, t)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.sub, b.sub), cmp.Compare(a.version, b.version))
	})
	return out
}

// obsolete decides which versions on disk may go: those that no plan names, but for the
// newest of them, which a server may still be reading.
func obsolete(onDisk []int64, named map[int64]bool) []int64 {
	var old []int64
	for _, v := range onDisk {
		if !named[v] {
			old = append(old, v)
		}
	}
	slices.Sort(old)
	if len(old) > 0 {
		old = old[:len(old)-1]
	}
	return old
}
