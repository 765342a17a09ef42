package portal

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/projections/models"
)

const (
	maxName     = 128
	maxReplicas = 1000 // of one serving shard
	maxShards   = 4096
)

// checkName refuses what could not be a folder, a part of an aggregate or a key of the
// agent service.
func checkName(what, name string) *bus.CommandError {
	if name == "" {
		return bus.Refuse(bus.CodeInvalid, "%s is missing: name it", what)
	}
	odd := strings.IndexFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`/\:@`, r)
	})
	if len(name) > maxName || odd >= 0 || strings.Trim(name, ".") == "" {
		return bus.Refuse(bus.CodeInvalid, `%s %q cannot be used: take at most %d printable ASCII characters without / \ : @`, what, name, maxName)
	}
	return nil
}

// fact is a draft on the model's own subject. Of several for one append the first one's
// expected sequence holds for all.
func fact(bzid, name string, expect uint64, e *model.Event) bus.Draft {
	return bus.Draft{Subject: model.Subject(bzid, name), Event: e, Expect: expect}
}

// learner is a running job that learns a model.
type learner struct {
	job      string
	specHash string // of the declaration it learns; empty: of the one in force
}

// decideDeclare declares spec under its own name. A refusal or one draft. What jobs are
// learning cannot change under them: each of their processes reads it at its own start.
func decideDeclare(bzid string, m models.Model, jobs []learner, spec *model.ModelSpec) ([]bus.Draft, *bus.CommandError) {
	if spec == nil {
		return nil, bus.Refuse(bus.CodeInvalid, `spec is missing: send {"spec":{"name":…,"features":…,"tables":…,"layers":…}}`)
	}
	if refusal := checkName("spec.name", spec.GetName()); refusal != nil {
		return nil, refusal
	}
	spec = modelspec.Normalize(spec)
	if err := modelspec.Trainable(spec); err != nil {
		return nil, bus.Refuse(bus.CodeInvalid, "spec of %q: %v", spec.GetName(), err)
	}
	for _, j := range jobs {
		if !j.learns(m, spec) {
			return nil, bus.Refuse(bus.CodeInvalid, `job %q is learning model %q with another spec: stop it first with {"stopRequested":{}} on training.%s.request, or declare this spec under another name`, j.job, spec.GetName(), j.job)
		}
	}
	if m.Load.V != nil && !proto.Equal(m.Spec.V, spec) {
		return nil, bus.Refuse(bus.CodeInvalid, "model %q is loaded with another spec: unload it first, or declare this spec under another name", spec.GetName())
	}
	return []bus.Draft{fact(bzid, spec.GetName(), m.Seq, &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: spec}}})}, nil
}

// learns says whether spec is what the job learns already.
func (j learner) learns(m models.Model, spec *model.ModelSpec) bool {
	if j.specHash == "" { // begun before declarations were hashed
		return m.Spec.V == nil || proto.Equal(m.Spec.V, spec)
	}
	return j.specHash == modelspec.Hash(spec)
}

// inherit fills in what ask leaves out from the load in force, which may be nil. Commands
// that have no words for replicas, a job or following, as those of ZooKeeper's clients,
// must not undo a load that has. A job goes with its folder: rows of one job are not kept
// fresh by another's deltas. Who names a version or a checkpoint wants that, as it was
// exported unless a job is named too. ask is not changed.
func inherit(ask, inForce *model.Load) *model.Load {
	if inForce == nil {
		return ask
	}
	load := proto.CloneOf(ask)
	if load.GetReplicas() == 0 {
		load.Replicas = inForce.GetReplicas()
	}
	newest := load.GetVersion() == 0 && load.GetCkpt() == ""
	if load.GetJob() == "" && newest && filepath.Clean(load.GetModelDir()) == inForce.GetModelDir() {
		load.Job = inForce.GetJob()
		load.Follow = load.GetFollow() || inForce.GetFollow()
	}
	return load
}

// resolve completes a load from what lies in its folder: the version, the number of
// shards, the replicas. ask is not changed.
func resolve(ask *model.Load, found export) (*model.Load, *bus.CommandError) {
	if refusal := checkName("modelName", ask.GetModelName()); refusal != nil {
		return nil, refusal
	}
	if ask.GetJob() != "" {
		if refusal := checkName("job", ask.GetJob()); refusal != nil {
			return nil, refusal
		}
	}
	if ask.GetReplicas() > maxReplicas {
		return nil, bus.Refuse(bus.CodeInvalid, "replicas is %d: ask for at most %d", ask.GetReplicas(), maxReplicas)
	}
	if !filepath.IsAbs(ask.GetModelDir()) {
		return nil, bus.Refuse(bus.CodeInvalid, "modelDir %q is not absolute: give the whole path of the exported_models folder", ask.GetModelDir())
	}
	if found.problem != "" {
		return nil, bus.Refuse(bus.CodeInvalid, "%s", found.problem)
	}
	shards := ask.GetNumShard() // over which the publisher spreads the sub-models
	switch {
	case shards == 0 || shards == -1:
		shards = int32(found.shards)
	case shards < 0 || shards > maxShards:
		return nil, bus.Refuse(bus.CodeInvalid, "numShard is %d: ask for 1 to %d serving shards, or leave it out for the %d of the export", shards, maxShards, found.shards)
	}
	version := ask.GetVersion()
	switch {
	case ask.GetCkpt() != "" && found.ckptProblem != "":
		return nil, bus.Refuse(bus.CodeInvalid, "ckpt of %q: %s", ask.GetModelName(), found.ckptProblem)
	case version == 0 && ask.GetCkpt() != "":
		version = found.ckptVersion
		if !slices.Contains(found.versions, version) {
			return nil, bus.Refuse(bus.CodeInvalid, "ckpt %s was exported as version %d, which is not in every sub-model of %s: ask for one of %s by its version", ask.GetCkpt(), version, ask.GetModelDir(), some(found.versions))
		}
	case version == 0:
		version = found.versions[len(found.versions)-1]
	case !slices.Contains(found.versions, version):
		return nil, bus.Refuse(bus.CodeInvalid, "version %d is not in every sub-model of %s: ask for one of %s, or leave it out for the newest", version, ask.GetModelDir(), some(found.versions))
	}
	load := proto.CloneOf(ask)
	load.ModelDir = filepath.Clean(ask.GetModelDir())
	load.NumShard = shards
	load.Version = version
	load.Replicas = max(ask.GetReplicas(), 1)
	return load, nil
}

// decideLoad accepts a resolved load. exported is the spec that lies in the export, for
// a model nobody declared yet; it is then declared under the load's name. Without a
// draft and a refusal the same load is in force already, since m.LoadSeq.
func decideLoad(bzid string, m models.Model, load *model.Load, exported *model.ModelSpec, again bool) ([]bus.Draft, *bus.CommandError) {
	if proto.Equal(m.Load.V, load) && !again {
		return nil, nil
	}
	var drafts []bus.Draft
	if m.Spec.V == nil {
		if exported == nil {
			return nil, bus.Refuse(bus.CodeInvalid, "model %q is not declared and its export carries no spec: call portal.declare first", load.GetModelName())
		}
		spec := proto.CloneOf(exported)
		spec.Name = load.GetModelName()
		if err := modelspec.Validate(spec); err != nil {
			return nil, bus.Refuse(bus.CodeInvalid, "model %q is not declared and the spec in its export cannot be: %v: call portal.declare first", load.GetModelName(), err)
		}
		drafts = append(drafts, fact(bzid, load.GetModelName(), m.Seq, &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: spec}}}))
	}
	return append(drafts, fact(bzid, load.GetModelName(), m.Seq, &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: load}}})), nil
}

// decideUnload withdraws a load.
func decideUnload(bzid, name string, m models.Model, reason string) ([]bus.Draft, *bus.CommandError) {
	if refusal := checkName("modelName", name); refusal != nil {
		return nil, refusal
	}
	if m.Load.V == nil {
		return nil, bus.Refuse(bus.CodeNotFound, "model %q is not loaded: portal.models lists what is", name)
	}
	return []bus.Draft{fact(bzid, name, m.Seq, &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: reason}}})}, nil
}

// some prints the newest few versions.
func some(versions []int64) string {
	const most = 5
	newest := slices.Clone(versions)
	slices.Reverse(newest)
	s := fmt.Sprint(newest[:min(most, len(newest))])
	if len(newest) > most {
		s += fmt.Sprintf(" (and %d older)", len(newest)-most)
	}
	return s
}
