package modelsync

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
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
	origin     string // the exported_models folder: versions of two folders are different ones
	source     string // the sub-model's folder in it
	seq        uint64 // of the Planned that wants it
}

// aggregate is where facts about the copy on host go.
func (t target) aggregate(host string) string { return t.model + "/" + t.sub + "/" + host }

func (t target) key(host string) string { return lineage.CopyKey(t.model, t.sub, t.version, host) }

// subModel is what the target is a version of, wherever that was exported.
func (t target) subModel() string { return t.model + "/" + t.sub }

// versionsDir is the folder of one export's versions of the sub-model, below the folder of
// copies: <model>/<origin>/<sub-model>. Copies of one export lie side by side there, as
// they did where they were made, and never beside those of another export.
func (t target) versionsDir() string {
	sum := sha256.Sum256([]byte(filepath.Clean(t.origin)))
	return filepath.Join(t.model, hex.EncodeToString(sum[:6]), t.sub)
}

// place is the copy's own folder below the folder of copies.
func (t target) place() string {
	return filepath.Join(t.versionsDir(), strconv.FormatInt(t.version, 10))
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

// wanted lists every sub-model that a plan in force puts on a container of this host,
// once each, sorted. The version is the plan's, and the candidate of its canary while one
// runs; its path ends in it.
func wanted(p plan.State, here func(container string) bool) []target {
	seen := map[string]bool{}
	var out []target
	add := func(t target) {
		if k := t.key(""); !seen[k] {
			seen[k] = true
			out = append(out, t)
		}
	}
	for name, x := range p.Plans {
		planned := x.Planned.V
		for _, a := range planned.GetAssignments() {
			if !here(a.GetContainer()) {
				continue
			}
			for sub, source := range a.GetSubModels() {
				t := target{model: name, sub: sub, version: planned.GetVersion(), origin: planned.GetModelDir(), source: source, seq: x.PlannedSeq}
				add(t)
				if t.version = x.Candidate(); t.version != 0 {
					t.source, t.seq = plan.VersionPath(source, t.version), x.Canary.DeclaredSeq
					add(t)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.sub, b.sub), cmp.Compare(a.version, b.version))
	})
	return out
}
