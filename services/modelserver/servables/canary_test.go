package servables

import (
	"testing"

	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver/entry"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// Only who names no version may be answered by a canary's candidate, and where nobody knows of a canary none runs.
func TestWhoMayBeAnsweredByACandidate(t *testing.T) {
	s := newManager(nil, 0, health.New())
	s.configs = map[string]tfserving.Model{"m:entry": {}}
	s.models["m:entry"] = map[int64]*version{}
	candidate := answering(4)
	for number, m := range map[int64]*entry.Model{3: answering(3), 4: candidate} {
		s.models["m:entry"][number] = &version{name: "m:entry", number: number, state: stateAvailable, data: &servable{entry: m}}
	}
	s.reindex()
	if c, m := s.Candidate(tfserving.Spec("m", 0)); c != nil || m != nil {
		t.Errorf("nobody knows of a canary: %v, %v", c, m)
	}
	if c, _ := s.Candidate(tfserving.Spec("m", 4)); c != nil {
		t.Errorf("nobody knows of a canary, and a version is named: %v", c)
	}
	s.canary = func(name string) *publish.CanaryDeclared {
		if name != "m" {
			return nil
		}
		return &publish.CanaryDeclared{Stable: 3, Candidate: 4}
	}
	if c, m := s.Candidate(tfserving.Spec("m", 0)); c.GetCandidate() != 4 || m != nil {
		t.Errorf("its rows are not everywhere yet: %v, %v", c, m)
	}
	candidate.Own(nil)
	if c, m := s.Candidate(tfserving.Spec("m", 0)); c.GetCandidate() != 4 || m != candidate {
		t.Errorf("who names no version: %v, %v", c, m)
	}
	for what, spec := range map[string]*apis.ModelSpec{
		"the candidate by its number": tfserving.Spec("m", 4), "the other": tfserving.Spec("m", 3), "a label": labelled("m", "x"), "a model without a canary": tfserving.Spec("other", 0),
	} {
		if c, m := s.Candidate(spec); c != nil || m != nil {
			t.Errorf("%s: %v, %v", what, c, m)
		}
	}
}
