package lineage

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/events/transfer"
)

// MaxSources bounds the hosts that are known to hand something out; of more, those that said so
// longest ago are forgotten.
const MaxSources = 4096

// Source is a host that hands out what lies there.
type Source struct {
	Offered events.JSON[*transfer.SourceOffered] `json:"offered"`
	Seq     uint64                               `json:"seq"` // of the fact
}

// offered folds what a host hands out.
func (s *State) offered(o *transfer.SourceOffered, seq uint64) {
	if o.GetAddress() == "" {
		delete(s.Sources, o.GetHost())
		return
	}
	if s.Sources == nil {
		s.Sources = map[string]Source{}
	}
	s.Sources[o.GetHost()] = Source{events.JSON[*transfer.SourceOffered]{V: o}, seq}
	if len(s.Sources) <= MaxSources {
		return
	}
	oldest, at := "", seq
	for host, x := range s.Sources {
		if x.Seq < at {
			oldest, at = host, x.Seq
		}
	}
	delete(s.Sources, oldest)
}

// Exported is what facts say of one sub-model of a version in an exported_models folder, one
// element for each job that says it exported there, by its newest fact; without those that are
// older than such facts.
func (s State) Exported(modelDir, sub string, version int64) (parts []*training.ExportedPart) {
	for _, j := range s.Jobs {
		for _, e := range slices.Backward(j.Exports) {
			if e.V.GetVersion() != version || filepath.Clean(e.V.GetModelDir()) != filepath.Clean(modelDir) {
				continue
			}
			if part := e.V.GetParts()[sub]; part != nil {
				parts = append(parts, part)
			}
			break
		}
	}
	return parts
}

// ExportsIn are the exports in an exported_models folder of which facts tell every sub-model, by
// version: what is known of the folder where it cannot be seen.
func (s State) ExportsIn(modelDir string) map[int64]*training.ModelExported {
	var out map[int64]*training.ModelExported
	for _, job := range slices.Sorted(maps.Keys(s.Jobs)) {
		for _, e := range s.Jobs[job].Exports {
			if filepath.Clean(e.V.GetModelDir()) != filepath.Clean(modelDir) || len(e.V.GetParts()) != len(e.V.GetSubModels()) {
				continue
			}
			if out == nil {
				out = map[int64]*training.ModelExported{}
			}
			out[e.V.GetVersion()] = e.V
		}
	}
	return out
}
