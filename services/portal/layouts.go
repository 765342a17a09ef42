package portal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/internal/compat/fnmatch"
	"github.com/monolith-go/monolith/internal/compat/savedmodel"
	"github.com/monolith-go/monolith/projections/savedmodels"
)

// The one architecture that is declared, and the policies it gets, byte for byte those of
// agent_controller: the entry follows new versions, and the shards stay at theirs unless
// their entry moves on. Deltas keep the rows of either fresh.
const (
	archEntryPS  = "entry_ps"
	policyEntry  = "latest"
	policyShards = "latest_once"
)

// layoutFact is a draft on an aggregate of the layout context.
func layoutFact(bzid, aggregate string, expect uint64, e *layout.Event) []bus.Draft {
	return []bus.Draft{{Subject: layout.Subject(bzid, aggregate), Event: e, Expect: expect}}
}

// decideSavedModels declares saved models of one model. Those that differ from what is
// declared need overwrite. No draft and no refusal: all of it is declared already.
func decideSavedModels(bzid string, s savedmodels.State, name string, want []*layout.SavedModel, overwrite bool) ([]bus.Draft, *bus.CommandError) {
	m := s.Models[name]
	same := true
	for _, w := range want {
		have, declared := m.SavedModels[w.GetSubGraph()]
		if declared && proto.Equal(have.V, w.GetConfig()) {
			continue
		}
		if declared && !overwrite {
			return nil, bus.Refuse(bus.CodeConflict, "saved model %s:%s is declared with another config: say overwrite to replace it", name, w.GetSubGraph())
		}
		same = false
	}
	if same {
		return nil, nil
	}
	return declaration(bzid, m, name, want), nil
}

func declaration(bzid string, m savedmodels.Model, name string, want []*layout.SavedModel) []bus.Draft {
	return layoutFact(bzid, layout.ModelAggregate(name), m.Seq, &layout.Event{
		Body: &layout.Event_SavedModelsDeclared{SavedModelsDeclared: &layout.SavedModelsDeclared{SavedModels: want}}})
}

// decideRemove takes one saved model back. Layouts that name it keep their entry, which
// agents pass over.
func decideRemove(bzid string, s savedmodels.State, name, sub string) ([]bus.Draft, *bus.CommandError) {
	m := s.Models[name]
	if _, ok := m.SavedModels[sub]; !ok {
		return nil, bus.Refuse(bus.CodeNotFound, "saved model %s:%s is not declared", name, sub)
	}
	return layoutFact(bzid, layout.ModelAggregate(name), m.Seq, &layout.Event{
		Body: &layout.Event_SavedModelsRemoved{SavedModelsRemoved: &layout.SavedModelsRemoved{SubGraphs: []string{sub}}}}), nil
}

// exported is what there is to declare in an exported_models folder.
type exported struct {
	name  string // by which its entry calls its shards; "" when it does not say
	subs  []*layout.SavedModel
	doubt error // why name is ""
}

// inspectExport looks into exportBase: every folder in it is a sub-graph, stray and
// hidden files are none.
func inspectExport(exportBase, arch string) (exported, *bus.CommandError) {
	if arch != "" && arch != archEntryPS {
		return exported{}, bus.Refuse(bus.CodeInvalid, "arch %q is unknown: there is only %s", arch, archEntryPS)
	}
	if !filepath.IsAbs(exportBase) {
		return exported{}, bus.Refuse(bus.CodeInvalid, "exportBase %q is not absolute: give the whole path of the exported_models folder", exportBase)
	}
	base := filepath.Clean(exportBase)
	children, err := os.ReadDir(base)
	if err != nil {
		return exported{}, bus.Refuse(bus.CodeInvalid, "exportBase cannot be read: %v: give an exported_models folder that the portal sees", err)
	}
	var out exported
	for _, c := range children {
		if strings.HasPrefix(c.Name(), ".") || !isDir(base, c) {
			continue
		}
		policy := policyShards
		if c.Name() == "entry" {
			policy = policyEntry
		}
		out.subs = append(out.subs, &layout.SavedModel{SubGraph: c.Name(), Config: &layout.DeployConfig{
			ModelBasePath: filepath.Join(base, c.Name()), VersionPolicy: policy}})
	}
	if !slices.ContainsFunc(out.subs, func(m *layout.SavedModel) bool { return m.GetSubGraph() == "entry" }) {
		return exported{}, bus.Refuse(bus.CodeInvalid, "exportBase %s does not hold entry/: give the exported_models folder of an export", base)
	}
	out.name, out.doubt = savedmodel.FindModelName(base)
	return out, nil
}

// decideExport declares what lies in an export, under its own name unless another is
// asked for. A model that is declared already needs overwrite; sub-graphs that the new
// export lacks stay declared then.
func decideExport(bzid string, s savedmodels.State, name string, found exported, overwrite bool) ([]bus.Draft, *bus.CommandError) {
	if refusal := checkName("the model", name); refusal != nil {
		return nil, refusal
	}
	m := s.Models[name]
	if len(m.SavedModels) > 0 && !overwrite {
		return nil, bus.Refuse(bus.CodeConflict, "model %q has %d saved models declared: say overwrite to replace them", name, len(m.SavedModels))
	}
	return declaration(bzid, m, name, found.subs), nil
}

// nameOf is under which name an export is declared.
func nameOf(asked string, found exported) (string, *bus.CommandError) {
	if asked != "" {
		return asked, nil
	}
	if found.name == "" {
		return "", bus.Refuse(bus.CodeInvalid, "the export does not say which model it is: %v: name the model", found.doubt)
	}
	return found.name, nil
}

// decideAdd offers entries in a layout; those already there are left out. The entries
// added come back, none when there was nothing to do.
func decideAdd(bzid string, s savedmodels.State, name string, entries []string) ([]bus.Draft, []string) {
	l := s.Layouts[name]
	fresh := slices.DeleteFunc(slices.Clone(entries), func(e string) bool { return l.Entries[e] != 0 })
	if len(fresh) == 0 {
		return nil, nil
	}
	return layoutFact(bzid, layout.LayoutAggregate(name), l.Seq, &layout.Event{
		Body: &layout.Event_EntriesAdded{EntriesAdded: &layout.EntriesAdded{Entries: fresh}}}), fresh
}

// decideDrop takes entries out of a layout; those not there are left out.
func decideDrop(bzid string, s savedmodels.State, name string, entries []string) ([]bus.Draft, []string) {
	l := s.Layouts[name]
	there := slices.DeleteFunc(slices.Clone(entries), func(e string) bool { return l.Entries[e] == 0 })
	if len(there) == 0 {
		return nil, nil
	}
	return layoutFact(bzid, layout.LayoutAggregate(name), l.Seq, &layout.Event{
		Body: &layout.Event_EntriesRemoved{EntriesRemoved: &layout.EntriesRemoved{Entries: there}}}), there
}

// matching are the entries that {model}:{glob} means: of declared sub-graphs, and, to
// take out of a layout, of what it holds, declared or not.
func matching(s savedmodels.State, pattern, from string) ([]string, *bus.CommandError) {
	model, glob, ok := strings.Cut(pattern, ":")
	if !ok || model == "" || glob == "" {
		return nil, bus.Refuse(bus.CodeInvalid, "pattern %q is not {model}:{glob}, such as movies:ps_*", pattern)
	}
	subs := s.SubGraphs(model)
	for entry := range s.Layouts[from].Entries {
		if m, sub, _ := layout.ParseEntry(entry); m == model {
			subs = append(subs, sub)
		}
	}
	slices.Sort(subs)
	subs = slices.Compact(subs)
	found := fnmatch.Filter(subs, glob)
	if len(found) == 0 {
		have := "it has none"
		if len(subs) > 0 {
			have = "it has " + strings.Join(subs[:min(len(subs), 20)], ", ")
		}
		return nil, bus.Refuse(bus.CodeNotFound, "no sub-graph of model %q matches %q: %s", model, glob, have)
	}
	for i, sub := range found {
		found[i] = model + ":" + sub
	}
	return found, nil
}

// checkAggregate refuses names that no subject of the layout context can have.
func checkAggregate(aggregate string) *bus.CommandError {
	if _, _, ok := layout.Parse(aggregate); !ok {
		kind, name, _ := strings.Cut(aggregate, "/")
		return bus.Refuse(bus.CodeInvalid, "%q cannot be a name below %s: it is one step of a path, or several for a layout, of at most 255 bytes each", name, kind)
	}
	return nil
}

// decideLayoutRequest answers a request on the log: facts, a refusal, or an error for
// which it is parked.
func (s *Server) decideLayoutRequest(aggregate string, r events.Recorded) ([]bus.Draft, error) {
	e, ok := r.Event.(*layout.Event)
	if !ok {
		return nil, fmt.Errorf("%w: %T is no event of a layout", events.ErrUnknown, r.Event)
	}
	model, name, _ := layout.Parse(aggregate)
	var drafts []bus.Draft
	var refusal *bus.CommandError
	var found exported
	if b := e.GetDeclareExportRequested(); b != nil { // reads files: outside of the view's lock
		found, refusal = inspectExport(b.GetExportBase(), b.GetArch())
	}
	var expect uint64
	s.layout.Read(func(v savedmodels.State) {
		expect = max(v.Models[model].Seq, v.Layouts[name].Seq)
		if refusal != nil {
			return
		}
		var entries []string
		switch b := e.GetBody().(type) {
		case *layout.Event_DeclareRequested:
			want := []*layout.SavedModel{b.DeclareRequested.GetSavedModel()}
			if drafts, refusal = decideSavedModels(s.env.BZID, v, model, want, b.DeclareRequested.GetOverwrite()); drafts == nil && refusal == nil {
				drafts = declaration(s.env.BZID, v.Models[model], model, want)
			}
		case *layout.Event_RemoveRequested:
			drafts, refusal = decideRemove(s.env.BZID, v, model, b.RemoveRequested.GetSubGraph())
		case *layout.Event_DeclareExportRequested:
			drafts, refusal = decideExport(s.env.BZID, v, model, found, b.DeclareExportRequested.GetOverwrite())
		case *layout.Event_AddEntryRequested:
			drafts, _ = decideAdd(s.env.BZID, v, name, []string{b.AddEntryRequested.GetEntry()})
		case *layout.Event_RemoveEntryRequested:
			drafts, _ = decideDrop(s.env.BZID, v, name, []string{b.RemoveEntryRequested.GetEntry()})
		case *layout.Event_PublishRequested:
			if entries, refusal = matching(v, b.PublishRequested.GetPattern(), ""); refusal == nil {
				drafts, _ = decideAdd(s.env.BZID, v, name, entries)
			}
		case *layout.Event_UnpublishRequested:
			if entries, refusal = matching(v, b.UnpublishRequested.GetPattern(), name); refusal == nil {
				drafts, _ = decideDrop(s.env.BZID, v, name, entries)
			}
		}
	})
	if refusal == nil && drafts == nil {
		refusal = bus.Refuse(bus.CodeInvalid, "there is nothing to do: the layout holds it already, or does not hold it")
	}
	if refusal != nil {
		drafts = layoutFact(s.env.BZID, aggregate, expect, &layout.Event{Body: &layout.Event_Refused{
			Refused: &layout.Refused{Request: catalog.Type(e), Reason: refusal.Message}}})
	}
	return drafts, nil
}
