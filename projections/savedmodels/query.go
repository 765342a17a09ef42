package savedmodels

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

// Offer is one entry of a layout with its deploy configuration.
type Offer struct {
	Model, SubGraph string
	Config          *layout.DeployConfig
}

// Offers are what agents that follow the layout may serve, by entry. Entries that nobody
// declared are returned apart: they cannot be served.
func (s State) Offers(name string) (offers []Offer, undeclared []string) {
	return s.OffersOf(slices.Sorted(maps.Keys(s.Layouts[name].Entries)))
}

// OffersOf is Offers for a list of {model}:{sub_graph}.
func (s State) OffersOf(entries []string) (offers []Offer, undeclared []string) {
	for _, entry := range entries {
		model, sub, _ := layout.ParseEntry(entry)
		if d, ok := s.Models[model].SavedModels[sub]; ok {
			offers = append(offers, Offer{Model: model, SubGraph: sub, Config: d.V})
		} else {
			undeclared = append(undeclared, entry)
		}
	}
	return offers, undeclared
}

// SubGraphs are the declared ones of a model, sorted.
func (s State) SubGraphs(model string) []string {
	return slices.Sorted(maps.Keys(s.Models[model].SavedModels))
}

// Services are the live containers that serve a sub-graph now, by sub-graph and sorted by
// id; none for a model that nobody serves.
func (s State) Services(model string) map[string][]*container.Container {
	out := map[string][]*container.Container{}
	for sub, ids := range s.bound()[model] {
		for _, id := range ids {
			out[sub] = append(out[sub], s.Containers[id].Container.V)
		}
	}
	return out
}

// SyncTargets are where parameters of a sub-graph are to be sent: its name as
// {model}:{sub_graph} and the gRPC addresses of who serves it. One that has no address
// that can be dialled is no target.
func (s State) SyncTargets(model, sub string) (name string, addresses []string) {
	for _, c := range s.Services(model)[sub] {
		if c.GetGrpcAddress() != "" {
			addresses = append(addresses, c.GetGrpcAddress())
		}
	}
	return model + ":" + sub, addresses
}

// bound are the ids of live containers by model and sub-graph, each once and sorted.
func (s State) bound() map[string]map[string][]string {
	out := map[string]map[string][]string{}
	for _, b := range s.Bindings {
		if _, alive := s.Containers[b.Container]; !alive || !b.Available {
			continue
		}
		if out[b.Model] == nil {
			out[b.Model] = map[string][]string{}
		}
		out[b.Model][b.SubGraph] = append(out[b.Model][b.SubGraph], b.Container)
	}
	for _, subs := range out {
		for sub, ids := range subs {
			slices.Sort(ids)
			subs[sub] = slices.Compact(ids)
		}
	}
	return out
}

type subGraphInfo struct {
	DeployConfig string   `json:"deploy_config"`
	Bindings     []string `json:"bindings"`
}

type containerInfo struct {
	ServiceInfo string   `json:"service_info"`
	SavedModels []string `json:"saved_models"`
}

// BZIDInfo is the whole view as agent_controller prints it: the bytes of Python's
// json.dumps(…, indent=2), every object sorted by key and every list sorted.
//
//	model_info      {model: {sub_graph: {deploy_config, bindings}, sub_graphs_available, sub_graphs_total}}
//	container_info  {cluster: {id: {service_info, saved_models}}}
//	layout_info     {layout: [model:sub_graph]}
//
// deploy_config and service_info are the texts of their nodes. A binding is
// {cluster}:{id}, and stands only below declared models.
func (s State) BZIDInfo() ([]byte, error) {
	info := struct {
		Models     map[string]map[string]any           `json:"model_info"`
		Containers map[string]map[string]containerInfo `json:"container_info"`
		Layouts    map[string][]string                 `json:"layout_info"`
	}{map[string]map[string]any{}, map[string]map[string]containerInfo{}, map[string][]string{}}

	bound := s.bound()
	serves := map[string][]string{} // by container id
	for model, subs := range bound {
		for sub, ids := range subs {
			for _, id := range ids {
				serves[id] = append(serves[id], model+":"+sub)
			}
		}
	}
	for name, m := range s.Models {
		if m.SavedModels == nil {
			continue
		}
		available := 0
		one := map[string]any{}
		for sub, d := range m.SavedModels {
			bindings := []string{}
			for _, id := range bound[name][sub] {
				bindings = append(bindings, view.ContainerNode(s.Containers[id].Container.V))
			}
			slices.Sort(bindings)
			if len(bindings) > 0 {
				available++
			}
			one[sub] = subGraphInfo{DeployConfig: string(view.DeployConfigOf(d.V).Bytes()), Bindings: bindings}
		}
		one["sub_graphs_total"], one["sub_graphs_available"] = len(m.SavedModels), available
		info.Models[name] = one
	}
	for id, c := range s.Containers {
		cluster, ctx, _ := strings.Cut(view.ContainerNode(c.Container.V), ":")
		if info.Containers[cluster] == nil {
			info.Containers[cluster] = map[string]containerInfo{}
		}
		models := append([]string{}, serves[id]...)
		slices.Sort(models)
		info.Containers[cluster][ctx] = containerInfo{ServiceInfo: string(view.ServiceInfoOf(c.Container.V).Bytes()), SavedModels: models}
	}
	for name, l := range s.Layouts {
		if l.Entries == nil {
			continue
		}
		// Of a layout with several steps its node below layouts shows the next step.
		top, below, nested := strings.Cut(name, "/")
		if below, _, _ = strings.Cut(below, "/"); nested {
			info.Layouts[top] = append(info.Layouts[top], below)
			continue
		}
		info.Layouts[top] = slices.AppendSeq(append([]string{}, info.Layouts[top]...), maps.Keys(l.Entries))
	}
	for name, entries := range info.Layouts {
		slices.Sort(entries)
		info.Layouts[name] = slices.Compact(entries)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(info); err != nil {
		return nil, fmt.Errorf("bzid_info: %w", err)
	}
	return ascii(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// ascii escapes what lies outside printable ASCII, which only texts hold.
func ascii(in []byte) []byte {
	var out []byte
	for _, r := range string(in) {
		switch {
		case r == '\n' || r >= ' ' && r <= '~':
			out = append(out, byte(r))
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}
