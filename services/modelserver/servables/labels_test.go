package servables

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

func labelled(name, label string) *apis.ModelSpec {
	return &apis.ModelSpec{Name: name, VersionChoice: &apis.ModelSpec_VersionLabel{VersionLabel: label}}
}

// A label means a version once that is AVAILABLE, and until then what it meant before.
func TestLabelsBindWhenTheirVersionIsAvailable(t *testing.T) {
	s := newManager(nil, 0, health.New())
	s.configs = map[string]tfserving.Model{"m:entry": {}, "other": {}}
	s.models["m:entry"] = map[int64]*version{}
	become := func(number int64, to state) {
		s.models["m:entry"][number] = &version{name: "m:entry", number: number, state: to, data: &servable{entry: answering(number)}}
		s.reindex()
	}
	become(3, stateAvailable)
	become(4, stateLoading)
	label := func(pending bool, of map[string]int64) error {
		return s.Label(map[string]map[string]int64{"m:entry": of}, pending)
	}
	means := func(text string, code codes.Code, says string, number int64) {
		t.Helper()
		found, err := s.index.Load().find(labelled("m", text))
		if status.Code(err) != code || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v; want %v saying %q", text, err, code, says)
		} else if err == nil && (len(found) != 1 || found[0].number() != number) {
			t.Errorf("%s: version %d, want %d", text, found[0].number(), number)
		}
	}
	means("stable", codes.InvalidArgument, "Unrecognized servable version label: stable; the model has none", 0)
	if err := label(false, map[string]int64{"stable": 3, "canary": 4}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "assign label to 4 of model m:entry") {
		t.Errorf("a version that is not available: %v", err)
	}
	means("stable", codes.InvalidArgument, "the model has none", 0) // all labels or none
	if err := label(true, map[string]int64{"stable": 3, "canary": 4}); err != nil {
		t.Error(err)
	}
	means("stable", codes.OK, "", 3)
	means("canary", codes.Unavailable, "version 4 of model m does not answer: LOADING (version label canary)", 0)
	means("x", codes.InvalidArgument, "Unrecognized servable version label: x; the model has {canary, stable}", 0)
	become(4, stateAvailable)
	means("canary", codes.OK, "", 4)
	if err := label(true, map[string]int64{"stable": 5, "canary": 4}); err != nil {
		t.Error(err)
	}
	means("stable", codes.OK, "", 3) // until 5 answers
	if err := label(false, map[string]int64{"stable": 5, "canary": 3}); err != nil {
		t.Errorf("a label that is pending already, and one of an available version: %v", err)
	}
	means("canary", codes.OK, "", 3)
	become(5, stateAvailable)
	means("stable", codes.OK, "", 5)
	become(5, stateUnloading)
	means("stable", codes.NotFound, "Specific(m, 5) (version label stable)", 0)
	if err := label(false, nil); err != nil {
		t.Error(err)
	}
	means("canary", codes.InvalidArgument, "the model has none", 0)
	if _, err := s.Version(labelled("nobody", "stable")); status.Code(err) != codes.NotFound {
		t.Errorf("a model that is not there: %v", err)
	}
	if _, err := s.Version(labelled("", "stable")); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no model: %v", err)
	}
}
