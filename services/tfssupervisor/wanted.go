package tfssupervisor

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
)

// assigned is one sub-model that this container should serve: one that the plan puts on
// it and that has been copied to its host, or one of its layout.
type assigned struct {
	model, sub string
	version    int64
	basePath   string
	export     string // identity of the copy; versions of two exports may have one number
	replica    int32
	candidate  int64  // a canary's version, to be served beside it from the same basePath; 0: none
	policy     string // of its declaration, where a layout offers it
	own        string // its name in the server's own file; "": name
}

// anyVersion is wanted of what the server chooses the versions of by itself.
const anyVersion = -1

func (a assigned) name() string { return a.model + ":" + a.sub }

// served is the name that the server knows it by.
func (a assigned) served() string { return cmp.Or(a.own, a.name()) }

// replaces tells whether a is another model than b under what is or may be the same number. A server
// that has b loaded would take a for the same, so b has to go first.
func (a assigned) replaces(b assigned) bool {
	same := a.version == b.version || a.version == anyVersion || b.version == anyVersion
	return a.name() == b.name() && same && (a.basePath != b.basePath || a.export != b.export)
}

// config is what the model server is told. The version is named unless all are served: where
// the original asks for the latest of an entry, it cannot go back to an older one.
func (a assigned) config() tfserving.Model {
	if a.version == anyVersion {
		return tfserving.Model{Name: a.name(), BasePath: a.basePath, Policy: tfserving.Policy{All: true}}
	}
	return tfserving.Model{Name: a.name(), BasePath: a.basePath, Policy: tfserving.Policy{Versions: a.versions()}}
}

// versions are those that the server is to have, the planned one first.
func (a assigned) versions() []int64 {
	if a.candidate == 0 {
		return []int64{a.version}
	}
	return []int64{a.version, a.candidate}
}

// isTask tells whether a sub-model is one of those that plans place and agents of version 1 register:
// entry, ps_<n>, dense_<n>.
func isTask(sub string) bool {
	kind, _, ok := replica.TaskOf(sub)
	return ok && (kind == "entry" || kind == "ps" || kind == "dense")
}

// assignments lists what this container should serve now, by name. While a planned
// version has not been copied to this host yet, what the server was told before about
// that sub-model stays, so that the old version answers until the new one can.
func assignments(p plan.State, l lineage.State, container, host string, told func(name string) (assigned, bool)) []assigned {
	var out []assigned
	for model, x := range p.Plans {
		planned := x.Planned.V
		for _, a := range planned.GetAssignments() {
			if a.GetContainer() != container {
				continue
			}
			for sub, source := range a.GetSubModels() {
				if !isTask(sub) {
					continue
				}
				c := l.Copies[lineage.CopyKey(model, sub, planned.GetVersion(), host)].V
				if c.GetSource() != source { // model-sync has not copied it yet
					if old, ok := told(assigned{model: model, sub: sub}.name()); ok {
						old.candidate = 0
						out = append(out, old)
					}
					continue
				}
				next := assigned{model: model, sub: sub, version: planned.GetVersion(), basePath: baseOf(c),
					export: c.GetExport(), replica: int32(a.GetReplica())}
				if v := x.Candidate(); v != 0 {
					copied := l.Copies[lineage.CopyKey(model, sub, v, host)].V
					if copied.GetSource() == plan.VersionPath(source, v) && baseOf(copied) == next.basePath {
						next.candidate = v
					}
				}
				out = append(out, next)
			}
		}
	}
	slices.SortFunc(out, func(a, b assigned) int {
		return cmp.Or(cmp.Compare(a.name(), b.name()), cmp.Compare(a.replica, b.replica))
	})
	return slices.CompactFunc(out, func(a, b assigned) bool { return a.name() == b.name() })
}

// baseOf is the folder of a copy's versions.
func baseOf(c *transfer.ModelCopied) string {
	if base := c.GetPath(); filepath.Base(base) == strconv.FormatInt(c.GetVersion(), 10) {
		return filepath.Dir(base)
	}
	return c.GetPath()
}

// report is the replica fact's content for a sub-model in a state.
func (a assigned) report(container string, at addresses, stat replica.State, version int64) *replica.Replica {
	kind, task, _ := replica.TaskOf(a.sub)
	return &replica.Replica{
		ModelName: a.model, ServerType: kind, Task: task, Replica: a.replica, Container: container,
		GrpcAddress: at.grpc, HttpAddress: at.http, RowsAddress: at.rows, ArchonAddress: at.archon,
		GrpcAddressIpv6: at.grpc6, ArchonAddressIpv6: at.archon6,
		Stat: stat, Version: max(version, 0),
	}
}
