package servables

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// label is a name for a version of a model.
type label struct {
	wanted int64 // the version that it is to mean
	bound  int64 // the one that it means: the newest wanted one that has been AVAILABLE; 0: none yet
}

// Label replaces the labels of all models, by the names that are configured. One of a version that is
// not AVAILABLE means what it meant before until that version is; unless pending is set such a label is
// refused, and all of them stay as they were. The error is a status.
func (s *Manager) Label(of map[string]map[string]int64, pending bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]map[string]label, len(of))
	for _, name := range slices.Sorted(maps.Keys(of)) {
		next[name] = make(map[string]label, len(of[name]))
		for _, text := range slices.Sorted(maps.Keys(of[name])) {
			l := s.labels[name][text]
			number := of[name][text]
			if !pending && l.wanted != number && !s.available(name, number) {
				return status.Errorf(codes.FailedPrecondition, "Request to assign label to %d of model %s, which is not currently available for inference: "+
					"send label %q once the version is AVAILABLE, or start with --allow_version_labels_for_unavailable_models", number, name, text)
			}
			l.wanted = number
			next[name][text] = l
		}
	}
	s.labels = next
	s.reindex()
	s.announce()
	return nil
}

// available says whether a version answers. The caller holds mu.
func (s *Manager) available(name string, number int64) bool {
	v := s.models[name][number]
	return v != nil && v.state == stateAvailable
}

// bind moves labels to what they are to mean, where that is AVAILABLE, and returns a copy of those of
// configured models. The caller holds mu.
func (s *Manager) bind() map[string]map[string]label {
	all := make(map[string]map[string]label, len(s.configs))
	for name := range s.configs {
		for text, l := range s.labels[name] {
			if l.bound != l.wanted && s.available(name, l.wanted) {
				l.bound = l.wanted
				s.labels[name][text] = l
			}
		}
		all[name] = maps.Clone(s.labels[name])
	}
	return all
}

// version is the number that a model spec asks for, 0 for the newest; the error is a status.
func (x *index) version(spec *apis.ModelSpec) (int64, error) {
	if spec.GetName() == "" {
		return 0, status.Error(codes.InvalidArgument, "Missing ModelSpec: name the model")
	}
	choice, ok := spec.GetVersionChoice().(*apis.ModelSpec_VersionLabel)
	if !ok {
		return spec.GetVersion().GetValue(), nil
	}
	labels, known := alias(x.labels, spec.GetName())
	if !known {
		return 0, x.missing(spec.GetName(), 0)
	}
	l, ok := labels[choice.VersionLabel]
	switch {
	case !ok:
		return 0, status.Errorf(codes.InvalidArgument, "Unrecognized servable version label: %s%s", choice.VersionLabel, choices(labels))
	case l.bound != 0:
		return l.bound, nil
	}
	return l.wanted, nil
}

// Version is the number that a model spec asks for, by label or by itself, 0 for the newest; the error
// is a status.
func (s *Manager) Version(spec *apis.ModelSpec) (int64, error) { return s.index.Load().version(spec) }

// choices ends a sentence about a label that is none of these.
func choices(labels map[string]label) string {
	if len(labels) == 0 {
		return "; the model has none: give it version_labels in its configuration"
	}
	return fmt.Sprintf("; the model has {%s}", strings.Join(slices.Sorted(maps.Keys(labels)), ", "))
}
