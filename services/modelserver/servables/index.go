package servables

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver/entry"
	"github.com/monolith-go/monolith/services/modelserver/rows"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// index is what requests read: only AVAILABLE versions, newest first, and why others are
// not among them.
type index struct {
	models map[string][]*servable
	shards map[shardKey][]*rows.Shard
	absent map[string]map[int64]string // of configured models: what keeps a version from answering
	labels map[string]map[string]label // of configured models

	expects func(name string) bool  // it is to be served here, configured or not; nil: nobody knows
	avoids  func(name string) int64 // the version that only who names it is answered by; nil: none is
}

type shardKey struct {
	model string
	shard uint32
}

// alias resolves {model} to {model}:entry where no model has that very name.
func alias[V any](models map[string]V, name string) (V, bool) {
	v, ok := models[name]
	if !ok {
		v, ok = models[name+":entry"]
	}
	return v, ok
}

// reindex publishes what answers now. The caller holds mu.
func (s *Manager) reindex() {
	x := &index{models: map[string][]*servable{}, shards: map[shardKey][]*rows.Shard{}, expects: s.expects, avoids: s.avoids, absent: map[string]map[int64]string{}, labels: s.bind()}
	for name := range s.configs {
		x.absent[name] = map[int64]string{}
	}
	for name, versions := range s.models {
		if _, configured := s.configs[name]; !configured {
			continue // whoever was told that it is gone must not be answered by it
		}
		for _, number := range slices.Backward(slices.Sorted(maps.Keys(versions))) {
			v := versions[number]
			if v.state != stateAvailable {
				if absent := x.absent[name]; absent != nil && (v.loading() || v.err != nil) {
					absent[number] = v.state.String()
					if v.err != nil {
						absent[number] += ": " + v.err.Error()
					}
				}
				continue
			}
			x.models[name] = append(x.models[name], v.data)
			if v.data.ps != nil {
				key := shardKey{v.model, uint32(v.shard)}
				x.shards[key] = append(x.shards[key], v.data.ps)
			}
		}
	}
	s.index.Store(x)
}

// find resolves a model spec to what may answer it, newest first: only the version that
// is asked for, if one is.
func (x *index) find(spec *apis.ModelSpec) ([]*servable, error) {
	want, err := x.version(spec)
	if err != nil {
		return nil, err
	}
	versions, _ := alias(x.models, spec.GetName())
	if want == 0 && len(versions) > 0 {
		return x.offered(spec.GetName(), versions)
	}
	for i, g := range versions {
		if g.number() == want {
			return versions[i : i+1], nil
		}
	}
	err = x.missing(spec.GetName(), want)
	if label := spec.GetVersionLabel(); label != "" {
		err = status.Errorf(status.Code(err), "%s (version label %s)", status.Convert(err).Message(), label)
	}
	return nil, err
}

// missing tells what is unknown, in the original's words, from what cannot answer now.
func (x *index) missing(name string, want int64) error {
	absent, known := alias(x.absent, name)
	if !known && x.expects != nil && x.expects(name) {
		return status.Errorf(codes.Unavailable, "model %s is to be served here, but this server has not been told to load it yet", name)
	}
	if why, ok := absent[want]; known && want > 0 && ok {
		return status.Errorf(codes.Unavailable, "version %d of model %s does not answer: %s", want, name, why)
	}
	if !known || want > 0 {
		return status.Error(codes.NotFound, notFound(name, want))
	}
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(absent))) {
		return status.Errorf(codes.Unavailable, "model %s does not answer: version %d is %s", name, n, absent[n])
	}
	return status.Errorf(codes.Unavailable, "model %s does not answer: no version of it has been found yet", name)
}

func (g *servable) number() int64 {
	if g.entry != nil {
		return g.entry.Version()
	}
	return g.ps.Version
}

// Entries resolves a model spec to what may predict for it, newest first, those first whose
// rows every shard has; the error is a status.
func (s *Manager) Entries(spec *apis.ModelSpec) ([]*entry.Model, error) {
	return s.index.Load().entries(spec)
}

// Serving says whether a model is configured, or to be served here, and whether a version of it
// answers; changed is closed when that may be another way.
func (s *Manager) Serving(name string) (known, answers bool, changed <-chan struct{}) {
	s.mu.Lock()
	changed = s.changed
	s.mu.Unlock()
	x := s.index.Load()
	versions, _ := alias(x.models, name)
	versions, _ = x.offered(name, versions)
	_, known = alias(x.absent, name)
	return known || x.expects != nil && x.expects(name), len(versions) > 0, changed
}

// Configured says whether a model is configured.
func (s *Manager) Configured(name string) bool {
	_, known := alias(s.index.Load().absent, name)
	return known
}

// Models are the names that are configured, in order.
func (s *Manager) Models() []string { return slices.Sorted(maps.Keys(s.index.Load().absent)) }

// Shards are the versions of one serving shard of a model, newest first.
func (s *Manager) Shards(model string, shard uint32) []*rows.Shard {
	return s.index.Load().shards[shardKey{model, shard}]
}

// Shard resolves a model spec to the rows that it names, nil where it names an entry; the error is a status.
func (s *Manager) Shard(spec *apis.ModelSpec) (*rows.Shard, error) {
	found, err := s.index.Load().find(spec)
	if err != nil {
		return nil, err
	}
	return found[0].ps, nil
}

// entries is find for what can predict, those first whose rows every shard has.
func (x *index) entries(spec *apis.ModelSpec) ([]*entry.Model, error) {
	found, err := x.find(spec)
	if err != nil {
		return nil, err
	}
	if found[0].entry == nil {
		return nil, status.Errorf(codes.Unimplemented, "model %s holds embedding rows, which the row protocol serves and, over gRPC, the signatures lookup, raw_lookup, hashtable_assign and raw_assign; for scores send Predict to %s:entry", spec.GetName(), found[0].ps.Model)
	}
	if sig := spec.GetSignatureName(); sig != "" && sig != tfserving.DefaultSignature {
		return nil, status.Errorf(codes.InvalidArgument, "Serving signature name: %q not found in signature def; it has %q", sig, tfserving.DefaultSignature)
	}
	entries := make([]*entry.Model, 0, len(found))
	for _, settled := range []bool{true, false} { // one whose rows are not everywhere is asked last
		for _, g := range found {
			if g.entry.Settled() == settled && len(entries) < len(found) {
				entries = append(entries, g.entry)
			}
		}
	}
	if len(entries) == 0 { // each was settled in between
		entries = append(entries, found[0].entry)
	}
	return entries, nil
}

// notFound says what is missing, in the original's words.
func notFound(name string, number int64) string {
	if number > 0 {
		return fmt.Sprintf("Servable not found for request: Specific(%s, %d)", name, number)
	}
	return fmt.Sprintf("Servable not found for request: Latest(%s)", name)
}
