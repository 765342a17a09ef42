package servables

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver/entry"
	"github.com/monolith-go/monolith/services/modelserver/rows"
)

func TestSplitName(t *testing.T) {
	for name, want := range map[string]struct {
		model, sub string
		shard      int
	}{"m": {"m", "entry", -1}, "m:entry": {"m", "entry", -1}, "m:ps_0": {"m", "ps_0", 0}, "ps_7": {"", "ps_7", 7}, "ps_x": {"ps_x", "entry", -1}, "m:ps_65535": {"m", "ps_65535", rows.MaxShards - 1}, "a:b:ps_12": {"a:b", "ps_12", 12}} {
		model, sub, shard, err := splitName(name)
		if err != nil || model != want.model || sub != want.sub || shard != want.shard {
			t.Errorf("%s: %s, %s, %d, %v", name, model, sub, shard, err)
		}
	}
	for _, name := range []string{":entry", ":ps_0", "m:", "m:ps_", "m:ps_-1", "m:ps_01", "m:ps_99999999999", "m:ps_65536", "m:dense_0"} {
		if _, _, _, err := splitName(name); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// Names without a model belong to the one that the server is told of, where it is.
func TestSplitNameOfAModel(t *testing.T) {
	s := newManager(nil, 0, health.New())
	s.of = "m"
	for name, want := range map[string]string{"entry": "m entry -1", "ps_3": "m ps_3 3", "other": "other entry -1", "x:ps_1": "x ps_1 1"} {
		model, sub, shard, err := s.split(name)
		if got := fmt.Sprint(model, " ", sub, " ", shard); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want)
		}
	}
}

// answering is an entry that answers as a version, and cannot compute.
func answering(version int64) *entry.Model {
	m := &entry.Model{}
	m.Serve(version, false)
	return m
}

// What requests are told of versions that do not answer.
func TestWhyAVersionDoesNotAnswer(t *testing.T) {
	s := newManager(nil, 0, health.New())
	s.configs = map[string]tfserving.Model{"m:entry": {}, "none": {}}
	g := &servable{entry: answering(3)}
	s.models = map[string]map[int64]*version{
		"m:entry": {
			1: {name: "m:entry", number: 1, state: stateEnd},
			2: {name: "m:entry", number: 2, state: stateEnd, err: &loadError{codes.NotFound, errors.New("no such file")}},
			3: {name: "m:entry", number: 3, state: stateAvailable, data: g},
			4: {name: "m:entry", number: 4, state: stateLoading},
			5: {name: "m:entry", number: 5, state: stateStart},
			6: {name: "m:entry", number: 6, state: stateUnloading},
		},
		"gone:entry": {7: {name: "gone:entry", number: 7, state: stateAvailable, data: &servable{entry: answering(7)}}},
	}
	s.reindex()
	x := s.index.Load()
	if found, err := x.find(tfserving.Spec("m", 0)); err != nil || len(found) != 1 || found[0] != g {
		t.Errorf("the one there is: %v, %v", found, err)
	}
	for _, tc := range []struct {
		name   string
		number int64
		code   codes.Code
		says   string
	}{
		{"m", 3, codes.OK, ""}, {"m:entry", 3, codes.OK, ""},
		{"m", 1, codes.NotFound, "Servable not found"}, {"m", 2, codes.Unavailable, "END: no such file"},
		{"m", 4, codes.Unavailable, "LOADING"}, {"m", 5, codes.Unavailable, "START"}, {"m", 6, codes.NotFound, "Specific(m, 6)"},
		{"m", 8, codes.NotFound, "Specific(m, 8)"}, {"none", 0, codes.Unavailable, "no version of it has been found"},
		{"gone", 0, codes.NotFound, "Latest(gone)"}, {"gone", 7, codes.NotFound, "Specific(gone, 7)"}, {"", 0, codes.InvalidArgument, "Missing ModelSpec"},
	} {
		found, err := x.find(tfserving.Spec(tc.name, tc.number))
		if status.Code(err) != tc.code || !strings.Contains(fmt.Sprint(err), tc.says) || (len(found) == 1) != (tc.code == codes.OK) {
			t.Errorf("%s, version %d: %v, %v; want %v saying %q", tc.name, tc.number, found, err, tc.code, tc.says)
		}
	}
	s.refuse(tfserving.Model{Name: "none"}, &loadError{codes.Unimplemented, errors.New("not served here")})
	s.reindex()
	if _, err := s.index.Load().find(tfserving.Spec("none", 0)); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "model none does not answer: version 0 is END: not served here") {
		t.Errorf("one that is not served here: %v", err)
	}
	delete(s.models["m:entry"], 3)
	s.reindex()
	if _, err := s.index.Load().find(tfserving.Spec("m", 0)); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "version 5 is START") {
		t.Errorf("none that answers: %v", err)
	}
	s.expects = func(name string) bool { return name == "soon" }
	s.reindex()
	for name, want := range map[string]codes.Code{"soon": codes.Unavailable, "never": codes.NotFound} {
		if _, err := s.index.Load().find(tfserving.Spec(name, 0)); status.Code(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Ended versions are shown until there are too many of them.
func TestTheOldestEndedVersionsAreForgotten(t *testing.T) {
	s := newManager(nil, 0, health.New())
	fill := func(n int) {
		s.models = map[string]map[int64]*version{"first": {0: {name: "first", state: stateEnd}}, "m": {-1: {state: stateLoading}}}
		for i := range int64(n - 1) {
			s.models["m"][i+1] = &version{name: "m", number: i + 1, state: stateEnd, endedAt: uint64(i + 1)}
		}
		s.forget()
	}
	if fill(maxEnded); len(s.models["m"]) != maxEnded || s.models["first"] == nil {
		t.Errorf("%d ended versions became %d", maxEnded, len(s.models["m"])-1)
	}
	if fill(maxEnded + 1); len(s.models["m"]) != maxEnded+1 || s.models["first"] != nil {
		t.Errorf("of %d ended versions the oldest is still there, and %d others", maxEnded+1, len(s.models["m"])-1)
	}
	if fill(maxEnded + 3); len(s.models["m"]) != maxEnded+1 || s.models["m"][2] != nil || s.models["m"][3] == nil || s.models["m"][-1] == nil {
		t.Errorf("of %d ended versions %d are there", maxEnded+3, len(s.models["m"])-1)
	}
}

// Those whose rows are everywhere come first, the newest of them before others.
func TestWhichVersionsAreAskedFirst(t *testing.T) {
	first, second, third := answering(3), answering(2), answering(1)
	settle := func(m *entry.Model) {
		t.Helper()
		if !m.Everywhere(t.Context(), rows.NewClient(nil, rowwire.NewPool(nil), nil, 0, 0)) {
			t.Fatal("a model without shards lacks rows")
		}
	}
	settle(second)
	x := &index{models: map[string][]*servable{"m": {{entry: first}, {entry: second}, {entry: third}}}}
	got, err := x.entries(tfserving.Spec("m", 0))
	if err != nil || !slices.Equal(got, []*entry.Model{second, first, third}) {
		t.Errorf("entries %v, %v", got, err)
	}
	settle(third)
	if got, err = x.entries(tfserving.Spec("m", 0)); err != nil || !slices.Equal(got, []*entry.Model{second, third, first}) {
		t.Errorf("entries %v, %v", got, err)
	}
}
