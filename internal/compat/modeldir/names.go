package modeldir

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/entrydump"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/vfs"
)

// Layout says in which files tables lie.
type Layout string

// The layouts.
const (
	Multi  Layout = "multi"  // all tables of a server in one set of files
	Single Layout = "single" // each in a set of its own
)

const (
	multiName     = "MonolithMultiHashTable"
	singleName    = "MonolithHashTable_"
	admissionName = "admission_"
)

// Names say what tables and variables are called in the model_dir: theirs by ours. An empty
// name says that it is not there.
type Names struct {
	Tables, Variables map[string]string
}

// Check refuses names of what the model does not have, and two of one.
func (n *Names) Check(spec *model.ModelSpec) error {
	known := map[string]bool{}
	for _, v := range modelspec.Variables(spec) {
		known[v.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(n.Variables)) {
		if !known[name] {
			return fmt.Errorf("model %q has no variable %q: monolith model check lists them", spec.GetName(), name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.Tables)) {
		if modelspec.Table(spec, name) == nil {
			return fmt.Errorf("model %q has no table %q", spec.GetName(), name)
		}
	}
	for what, names := range map[string]map[string]string{"table": n.Tables, "variable": n.Variables} {
		taken := map[string]string{}
		for _, ours := range slices.Sorted(maps.Keys(names)) {
			theirs := names[ours]
			if other, ok := taken[theirs]; ok && theirs != "" {
				return fmt.Errorf("%ss %q and %q are both called %q: give each its own", what, other, ours, theirs)
			}
			taken[theirs] = ours
		}
	}
	return nil
}

// variable is what a dense variable is called there.
func (n *Names) variable(ours string) string {
	if theirs, ok := n.Variables[ours]; ok {
		return theirs
	}
	return ours
}

// candidates are the names under which a table is looked for, the likeliest first: the feature's
// where it is of one feature alone, ours, and the digest of the names of its features.
func (n *Names) candidates(spec *model.ModelSpec, table string) []string {
	if theirs, ok := n.Tables[table]; ok {
		return []string{theirs}
	}
	var features []string
	for _, f := range spec.GetFeatures() {
		if f.GetTable() == table {
			features = append(features, f.GetName())
		}
	}
	var names []string
	if len(features) == 1 {
		names = features[:1:1]
	}
	return append(names, table, digest(features))
}

// table is what a table is called in files that are written.
func (n *Names) table(spec *model.ModelSpec, table string, layout Layout) string {
	all := n.candidates(spec, table)
	if layout == Single {
		return all[len(all)-1]
	}
	return all[0]
}

// digest is what the original calls a table of these features.
func digest(features []string) string {
	sum := md5.Sum([]byte(strings.Join(slices.Sorted(slices.Values(features)), ",")))
	return hex.EncodeToString(sum[:])
}

// theirs are the names of all tables, each of its own.
func (n *Names) theirs(spec *model.ModelSpec, layout Layout) (map[string]string, error) {
	names, taken := map[string]string{}, map[string]string{}
	for _, t := range spec.GetTables() {
		name := n.table(spec, t.GetName(), layout)
		if other, ok := taken[name]; ok || name == "" {
			return nil, fmt.Errorf("table %q would be called %q, as %q is: name it with --table %s=NAME", t.GetName(), name, other, t.GetName())
		}
		names[t.GetName()], taken[name] = name, t.GetName()
	}
	return names, nil
}

// multiBase is the set that holds a server's tables, and singleBase that of one table.
func multiBase(ps int) string { return multiName + "_" + strconv.Itoa(ps) }

func singleBase(theirs string, ps int) string {
	return entrydump.BaseName(singleName + theirs + "_" + strconv.Itoa(ps))
}

var shardFile = regexp.MustCompile(`^(.+?)(\.meta)?-\d{5}-of-\d{5}$`)

// sets are the names of the sets of files in a folder.
func sets(dir string) ([]string, error) {
	paths, err := vfs.Glob(vfs.Join(escaped(dir), "*"))
	if err != nil {
		return nil, err
	}
	bases := map[string]bool{}
	for _, path := range paths {
		if m := shardFile.FindStringSubmatch(vfs.Base(path)); m != nil {
			bases[m[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(bases)), nil
}

// server is of which server a set is, by what follows its table's name; a model without servers
// has none there.
func server(base, of string) (ps int, ok bool) {
	rest, ok := strings.CutPrefix(base, of)
	if !ok || rest == "" {
		return 0, ok
	}
	number, ok := strings.CutPrefix(rest, "_")
	ps, err := strconv.Atoi(number)
	return ps, ok && err == nil && ps >= 0 && strconv.Itoa(ps) == number
}
