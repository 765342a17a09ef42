// Package layout holds the facts about saved models and layouts: which exported
// sub-graphs are declared, with which deploy configuration, and which of them a layout
// offers to the agents that follow it. The portal owns them.
package layout

import (
	"strings"

	"github.com/monolith-go/monolith/events"
)

// The two kinds of aggregate are "saved_models/<model>" and "layouts/<layout>". A
// layout's name may have several steps, a model's has one.
const (
	savedModels = "saved_models/"
	layouts     = "layouts/"
)

// maxItems bounds one fact's list, maxAggregate the name of a layout of many steps.
const (
	maxItems     = 4096
	maxAggregate = 1024
)

// ModelAggregate is the aggregate of a model's saved models.
func ModelAggregate(model string) string { return savedModels + model }

// LayoutAggregate is the aggregate of a layout's entries.
func LayoutAggregate(name string) string { return layouts + name }

// Parse takes an aggregate apart; exactly one of model and layout is not empty when ok.
func Parse(aggregate string) (model, layout string, ok bool) {
	if m, is := strings.CutPrefix(aggregate, savedModels); is {
		return m, "", component(m)
	}
	if l, is := strings.CutPrefix(aggregate, layouts); is {
		for step := range strings.SplitSeq(l, "/") {
			if !component(step) {
				return "", "", false
			}
		}
		return "", l, true
	}
	return "", "", false
}

// ParseEntry takes {model}:{sub_graph} apart, as the text before and after the first colon.
func ParseEntry(entry string) (model, sub string, ok bool) {
	model, sub, ok = strings.Cut(entry, ":")
	return model, sub, ok && component(model) && component(sub)
}

// component is what can be one step of a path in ZooKeeper's tree.
func component(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 255 && !strings.ContainsFunc(s, func(r rune) bool {
		return r == '/' || r < ' ' || (r >= 0x7f && r <= 0x9f) || r == '\uFFFD'
	})
}

// Validate reports the rules that e breaks on the subject of aggregate, as an
// [events.ErrInvalid].
func (e *Event) Validate(aggregate string) error {
	var r events.Rules
	r.Text("the aggregate", aggregate, maxAggregate)
	r.Bounded(e)
	model, layout, ok := Parse(aggregate)
	r.Check(ok, "aggregate %q is neither saved_models/<model> nor layouts/<layout>", aggregate)
	ofModel := func() { r.Check(!ok || model != "", "this belongs on saved_models/<model>, not on %q", aggregate) }
	ofLayout := func() { r.Check(!ok || layout != "", "this belongs on layouts/<layout>, not on %q", aggregate) }
	switch b := e.GetBody().(type) {
	case *Event_DeclareRequested:
		ofModel()
		savedModel(&r, b.DeclareRequested.GetSavedModel())
	case *Event_RemoveRequested:
		ofModel()
		subGraph(&r, b.RemoveRequested.GetSubGraph())
	case *Event_DeclareExportRequested:
		ofModel()
		r.Check(b.DeclareExportRequested.GetExportBase() != "", "export_base must be given: the exported_models folder")
	case *Event_AddEntryRequested:
		ofLayout()
		entry(&r, b.AddEntryRequested.GetEntry())
	case *Event_RemoveEntryRequested:
		ofLayout()
		entry(&r, b.RemoveEntryRequested.GetEntry())
	case *Event_PublishRequested:
		ofLayout()
		pattern(&r, b.PublishRequested.GetPattern())
	case *Event_UnpublishRequested:
		ofLayout()
		pattern(&r, b.UnpublishRequested.GetPattern())
	case *Event_SavedModelsDeclared:
		ofModel()
		many(&r, "saved models", len(b.SavedModelsDeclared.GetSavedModels()))
		for _, m := range b.SavedModelsDeclared.GetSavedModels() {
			savedModel(&r, m)
		}
	case *Event_SavedModelsRemoved:
		ofModel()
		many(&r, "sub-graphs", len(b.SavedModelsRemoved.GetSubGraphs()))
		for _, s := range b.SavedModelsRemoved.GetSubGraphs() {
			subGraph(&r, s)
		}
	case *Event_EntriesAdded:
		ofLayout()
		entries(&r, b.EntriesAdded.GetEntries())
	case *Event_EntriesRemoved:
		ofLayout()
		entries(&r, b.EntriesRemoved.GetEntries())
	case *Event_Refused:
		r.Reason("a refusal", b.Refused.GetReason())
	}
	return r.Err()
}

func savedModel(r *events.Rules, m *SavedModel) {
	subGraph(r, m.GetSubGraph())
	r.Check(m.GetConfig() != nil, "the deploy config of %q is missing: give model_base_path and version_policy", m.GetSubGraph())
	r.Check(len(m.GetConfig().GetModelBasePath()) <= 4096, "model_base_path of %q is longer than 4096 bytes", m.GetSubGraph())
	r.Check(len(m.GetConfig().GetVersionPolicy()) <= 255, "version_policy of %q is longer than 255 bytes", m.GetSubGraph())
}

func subGraph(r *events.Rules, s string) {
	r.Check(component(s), "sub-graph %q cannot be used: it is one step of a path, such as entry or ps_0", s)
}

func entries(r *events.Rules, list []string) {
	many(r, "entries", len(list))
	for _, e := range list {
		entry(r, e)
	}
}

func entry(r *events.Rules, e string) {
	_, _, ok := ParseEntry(e)
	r.Check(ok, "entry %q is not {model}:{sub_graph}", e)
}

func pattern(r *events.Rules, p string) {
	model, glob, ok := strings.Cut(p, ":")
	r.Check(ok && component(model) && glob != "" && len(p) <= 1024, "pattern %q is not {model}:{glob}", p)
}

func many(r *events.Rules, what string, n int) {
	r.Check(n > 0 && n <= maxItems, "%d %s: at least one and at most %d are allowed", n, what, maxItems)
}
