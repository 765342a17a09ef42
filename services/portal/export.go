package portal

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/compat/modelinfo"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/projections/lineage"
)

// export is what an exported_models folder holds.
type export struct {
	problem  string  // why nothing can be served from it, as a sentence; "" when it can
	shards   int     // ps_0 ... ps_<shards-1>
	versions []int64 // that every sub-model has, ascending

	ckptVersion int64  // exported at the checkpoint that was asked for
	ckptProblem string // why that is not known, as a sentence; "" when it is, or none was asked for
}

// inspectAt is inspect, and finds the version that was exported at ckpt as the listing of
// a model does. "" is no checkpoint in particular.
func inspectAt(dir, ckpt string) export {
	found := inspect(dir)
	if ckpt == "" || found.problem != "" {
		return found
	}
	_, _, version, err := modelinfo.Calculate(dir, ckpt)
	if found.ckptVersion = version; err != nil {
		found.ckptProblem = err.Error()
	}
	return found
}

// inspect looks into dir. Versions appear there by rename, so what is seen is whole.
func inspect(dir string) export {
	if !filepath.IsAbs(dir) {
		return export{problem: fmt.Sprintf("modelDir %q is not absolute", dir)}
	}
	children, err := os.ReadDir(dir)
	if err != nil {
		return export{problem: fmt.Sprintf("modelDir %s cannot be read: %v: give an exported_models folder that the portal sees", dir, err)}
	}
	shards := map[int]bool{}
	entry := false
	for _, c := range children {
		if !isDir(dir, c) {
			continue
		}
		if c.Name() == "entry" {
			entry = true
		}
		if n, ok := shardOf(c.Name()); ok {
			shards[n] = true
		}
	}
	if !entry || len(shards) == 0 {
		return export{problem: fmt.Sprintf("modelDir %s does not hold entry/ and ps_0/ ...: give the exported_models folder of an export", dir)}
	}
	var common []int64
	subs := []string{"entry"}
	for i := range len(shards) {
		if !shards[i] {
			return export{problem: fmt.Sprintf("modelDir %s holds %d ps folders, but ps_%d is missing: export again", dir, len(shards), i)}
		}
		subs = append(subs, "ps_"+strconv.Itoa(i))
	}
	for i, sub := range subs {
		have, err := versions(filepath.Join(dir, sub))
		if err != nil {
			return export{problem: fmt.Sprintf("modelDir %s: %v", dir, err)}
		}
		if i == 0 {
			common = have
			continue
		}
		common = slices.DeleteFunc(common, func(v int64) bool { return !slices.Contains(have, v) })
	}
	if len(common) == 0 {
		return export{problem: fmt.Sprintf("modelDir %s has no version that entry and all %d ps folders hold: wait for an export to finish, or export again", dir, len(shards))}
	}
	return export{shards: len(shards), versions: common}
}

// and adds what facts tell of the folder. Where this host has a part of it, as one that has some of the
// job's shards, they alone count.
func (e export) and(told export) export {
	if e.problem != "" || e.shards != told.shards {
		return told
	}
	e.versions = slices.Compact(slices.Sorted(slices.Values(slices.Concat(e.versions, told.versions))))
	if e.ckptProblem != "" {
		e.ckptVersion, e.ckptProblem = told.ckptVersion, told.ckptProblem
	}
	return e
}

// elsewhere is what facts say of a folder that may be on other hosts, where they say anything: its
// exports travel from host to host.
func elsewhere(l lineage.State, dir, ckpt string) (out export, ok bool) {
	exports := l.ExportsIn(dir)
	if len(exports) == 0 {
		return out, false
	}
	out.versions = slices.Sorted(maps.Keys(exports))
	for _, sub := range exports[out.versions[len(out.versions)-1]].GetSubModels() {
		if _, ok := shardOf(sub); ok {
			out.shards++
		}
	}
	if ckpt != "" { // a job's export has the number of its checkpoint
		version, err := checkpoint.Parse(ckpt)
		if out.ckptVersion = version; err != nil || exports[version] == nil {
			out.ckptProblem = fmt.Sprintf("no export of %s in %s is known, which is not on this host: ask for a version, one of %s", ckpt, dir, some(out.versions))
		}
	}
	return out, true
}

// versions are the folders named by a positive number, ascending.
func versions(dir string) ([]int64, error) {
	children, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, c := range children {
		v, err := strconv.ParseInt(c.Name(), 10, 64)
		if err == nil && v > 0 && strconv.FormatInt(v, 10) == c.Name() && isDir(dir, c) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out, nil
}

// shardOf is i of ps_<i>.
func shardOf(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "ps_")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0 && strconv.Itoa(n) == digits
}

// isDir follows links, which deployments use to share exports.
func isDir(dir string, c os.DirEntry) bool {
	if c.IsDir() {
		return true
	}
	info, err := os.Stat(filepath.Join(dir, c.Name()))
	return err == nil && info.IsDir()
}

// exportedSpec reads the spec that an export's entry carries.
func exportedSpec(dir string, version int64) (*model.ModelSpec, error) {
	path := filepath.Join(dir, "entry", strconv.FormatInt(version, 10))
	e, err := checkpoint.ReadEntry(path)
	if err != nil {
		return nil, fmt.Errorf("read the spec in %s: %w", path, err)
	}
	return e.Spec, nil
}
