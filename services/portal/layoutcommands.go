package portal

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/projections/savedmodels"
	"github.com/monolith-go/monolith/services/internal/role"
)

// onLayout appends what decide makes of the layout view, on one aggregate.
func (s *Server) onLayout(ctx context.Context, aggregate string, decide func(savedmodels.State) ([]bus.Draft, *bus.CommandError)) (uint64, error) {
	if refusal := checkAggregate(aggregate); refusal != nil {
		return 0, refusal
	}
	model, name, _ := layout.Parse(aggregate)
	return s.appendSeq(ctx, layout.Subject(s.env.BZID, aggregate), func() (drafts []bus.Draft, standing uint64, refusal *bus.CommandError) {
		s.layout.Read(func(v savedmodels.State) {
			standing = max(v.Models[model].Seq, v.Layouts[name].Seq)
			drafts, refusal = decide(v)
		})
		return drafts, standing, refusal
	})
}

type savedModelAsk struct {
	Model     string          `json:"model"`
	Sub       string          `json:"sub"`
	Config    json.RawMessage `json:"config"`
	Overwrite bool            `json:"overwrite"`
}

// handleDeclareSavedModel declares one sub-graph of a model. Config is the node's own
// JSON, or the same in the fact's spelling.
func (s *Server) handleDeclareSavedModel(ctx context.Context, payload []byte) ([]byte, error) {
	const example = `{"model":"movies","sub":"ps_0","config":{"model_base_path":"/…/exported_models/ps_0","version_policy":"latest_once"},"overwrite":false}`
	var ask savedModelAsk
	if err := role.DecodeJSON(payload, &ask, example); err != nil {
		return nil, err
	}
	config := &layout.DeployConfig{}
	if len(ask.Config) == 0 || string(ask.Config) == "null" {
		return nil, bus.Refuse(bus.CodeInvalid, "config is missing: send a body like %s", example)
	}
	if err := protojson.Unmarshal(ask.Config, config); err != nil {
		return nil, bus.Refuse(bus.CodeInvalid, "config does not decode: %v: send a body like %s", err, example)
	}
	want := []*layout.SavedModel{{SubGraph: ask.Sub, Config: config}}
	seq, err := s.onLayout(ctx, layout.ModelAggregate(ask.Model), func(v savedmodels.State) ([]bus.Draft, *bus.CommandError) {
		return decideSavedModels(s.env.BZID, v, ask.Model, want, ask.Overwrite)
	})
	if err != nil {
		return nil, err
	}
	return role.Seq(seq), nil
}

func (s *Server) handleRemoveSavedModel(ctx context.Context, payload []byte) ([]byte, error) {
	var ask struct {
		Model string `json:"model"`
		Sub   string `json:"sub"`
	}
	if err := role.DecodeJSON(payload, &ask, `{"model":"movies","sub":"ps_0"}`); err != nil {
		return nil, err
	}
	seq, err := s.onLayout(ctx, layout.ModelAggregate(ask.Model), func(v savedmodels.State) ([]bus.Draft, *bus.CommandError) {
		return decideRemove(s.env.BZID, v, ask.Model, ask.Sub)
	})
	if err != nil {
		return nil, err
	}
	return role.Seq(seq), nil
}

// handleDeclareExport declares every sub-graph of an export in one fact.
func (s *Server) handleDeclareExport(ctx context.Context, payload []byte) ([]byte, error) {
	var ask struct {
		ExportBase string `json:"exportBase"`
		Arch       string `json:"arch"`
		Model      string `json:"model"` // default: the name that the export's entry gives
		Overwrite  bool   `json:"overwrite"`
	}
	if err := role.DecodeJSON(payload, &ask, `{"exportBase":"/…/exported_models","arch":"entry_ps","overwrite":false}`); err != nil {
		return nil, err
	}
	found, refusal := inspectExport(ask.ExportBase, ask.Arch)
	if refusal != nil {
		return nil, refusal
	}
	name, refusal := nameOf(ask.Model, found)
	if refusal != nil {
		return nil, refusal
	}
	if found.name != "" && found.name != name {
		s.env.Log.Warn("export declared under a name that is not its own", "name", name, "export", found.name, "folder", ask.ExportBase)
	}
	seq, err := s.onLayout(ctx, layout.ModelAggregate(name), func(v savedmodels.State) ([]bus.Draft, *bus.CommandError) {
		return decideExport(s.env.BZID, v, name, found, ask.Overwrite)
	})
	if err != nil {
		return nil, err
	}
	subs := []string{}
	for _, m := range found.subs {
		subs = append(subs, m.GetSubGraph())
	}
	return json.Marshal(struct {
		Seq   uint64   `json:"seq"`
		Model string   `json:"model"`
		Subs  []string `json:"subs"`
	}{seq, name, subs})
}

// change is what the commands about a layout's entries do: pick names the entries meant,
// decide drafts for those that are news.
func (s *Server) change(ctx context.Context, name string,
	pick func(savedmodels.State) ([]string, *bus.CommandError),
	decide func(bzid string, v savedmodels.State, name string, entries []string) ([]bus.Draft, []string),
) ([]byte, error) {
	changed := []string{}
	seq, err := s.onLayout(ctx, layout.LayoutAggregate(name), func(v savedmodels.State) ([]bus.Draft, *bus.CommandError) {
		entries, refusal := pick(v)
		if refusal != nil {
			return nil, refusal
		}
		drafts, fresh := decide(s.env.BZID, v, name, entries)
		changed = append([]string{}, fresh...)
		return drafts, nil
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		Seq     uint64   `json:"seq"`
		Entries []string `json:"entries"` // that this call changed
	}{seq, changed})
}

type entryAsk struct {
	Layout string `json:"layout"`
	Entry  string `json:"entry"`
}

const entryExample = `{"layout":"mixed","entry":"movies:ps_0"}`

// handleAddEntry puts one entry into a layout, declared or not. It may be there already.
func (s *Server) handleAddEntry(ctx context.Context, payload []byte) ([]byte, error) {
	var ask entryAsk
	if err := role.DecodeJSON(payload, &ask, entryExample); err != nil {
		return nil, err
	}
	return s.change(ctx, ask.Layout, func(savedmodels.State) ([]string, *bus.CommandError) { return []string{ask.Entry}, nil }, decideAdd)
}

// handleRemoveEntry takes one entry out of a layout that holds it.
func (s *Server) handleRemoveEntry(ctx context.Context, payload []byte) ([]byte, error) {
	var ask entryAsk
	if err := role.DecodeJSON(payload, &ask, entryExample); err != nil {
		return nil, err
	}
	return s.change(ctx, ask.Layout, func(v savedmodels.State) ([]string, *bus.CommandError) {
		if v.Layouts[ask.Layout].Entries[ask.Entry] == 0 {
			return nil, bus.Refuse(bus.CodeNotFound, "layout %q does not hold %q", ask.Layout, ask.Entry)
		}
		return []string{ask.Entry}, nil
	}, decideDrop)
}

type patternAsk struct {
	Layout  string `json:"layout"`
	Pattern string `json:"pattern"`
}

const patternExample = `{"layout":"mixed","pattern":"movies:ps_*"}`

// handlePublish puts every declared sub-graph that matches into a layout.
func (s *Server) handlePublish(ctx context.Context, payload []byte) ([]byte, error) {
	var ask patternAsk
	if err := role.DecodeJSON(payload, &ask, patternExample); err != nil {
		return nil, err
	}
	return s.change(ctx, ask.Layout, func(v savedmodels.State) ([]string, *bus.CommandError) { return matching(v, ask.Pattern, "") }, decideAdd)
}

// handleUnpublish takes every sub-graph that matches out of a layout.
func (s *Server) handleUnpublish(ctx context.Context, payload []byte) ([]byte, error) {
	var ask patternAsk
	if err := role.DecodeJSON(payload, &ask, patternExample); err != nil {
		return nil, err
	}
	return s.change(ctx, ask.Layout, func(v savedmodels.State) ([]string, *bus.CommandError) {
		return matching(v, ask.Pattern, ask.Layout)
	}, decideDrop)
}

// handleBZIDInfo prints everything the way agent_controller does.
func (s *Server) handleBZIDInfo(context.Context, []byte) (reply []byte, err error) {
	s.layout.Read(func(v savedmodels.State) { reply, err = v.BZIDInfo() })
	return reply, err
}

// handleSyncTargets says by which name parameters of a sub-graph are pushed, and to whom.
func (s *Server) handleSyncTargets(_ context.Context, payload []byte) ([]byte, error) {
	var ask struct {
		Model string `json:"model"`
		Sub   string `json:"sub"`
	}
	const example = `{"model":"movies","sub":"ps_0"}`
	if err := role.DecodeJSON(payload, &ask, example); err != nil {
		return nil, err
	}
	if ask.Model == "" || ask.Sub == "" {
		return nil, bus.Refuse(bus.CodeInvalid, "model and sub must be given: send a body like %s", example)
	}
	out := struct {
		Name    string   `json:"name"`
		Targets []string `json:"targets"`
	}{Targets: []string{}}
	s.layout.Read(func(v savedmodels.State) {
		var targets []string
		out.Name, targets = v.SyncTargets(ask.Model, ask.Sub)
		out.Targets = append(out.Targets, targets...)
	})
	return json.Marshal(out)
}
