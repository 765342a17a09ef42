package savedmodels_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	eventslayout "github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/projections/internal/foldtest"
	"github.com/monolith-go/monolith/projections/savedmodels"
)

func TestReplay(t *testing.T) {
	foldtest.Replay(t, "testdata/story.jsonl", "testdata/story.want.json",
		follow.View[savedmodels.State]{Name: savedmodels.Name, Version: savedmodels.Version, New: savedmodels.New, Fold: savedmodels.Fold})
}

// at folds the story up to a sequence.
func at(t *testing.T, seq uint64) savedmodels.State {
	t.Helper()
	s := savedmodels.New()
	for _, r := range foldtest.ReadLog(t, "testdata/story.jsonl") {
		if r.Seq <= seq {
			s = savedmodels.Fold(s, r)
		}
	}
	return s
}

const end = 100

// What the original's backend test asks for: the layout's callback, services, targets.
func TestQueries(t *testing.T) {
	s := at(t, 19) // before pod-2 is lost
	offers, undeclared := s.Offers("test_layout1")
	var got []string
	for _, o := range offers {
		got = append(got, fmt.Sprintf("%s:%s %s %s", o.Model, o.SubGraph, o.Config.GetModelBasePath(), o.Config.GetVersionPolicy()))
	}
	if diff := cmp.Diff([]string{"test_ffm_model:entry /d/entry latest", "test_ffm_model:ps_0 /d/ps_0 latest_once"}, got); diff != "" {
		t.Errorf("offers: %s", diff)
	}
	if diff := cmp.Diff([]string{"other:entry"}, undeclared); diff != "" {
		t.Errorf("undeclared: %s", diff)
	}
	if diff := cmp.Diff([]string{"entry", "ps_0", "ps_1"}, s.SubGraphs("test_ffm_model")); diff != "" {
		t.Errorf("sub-graphs: %s", diff)
	}
	services := map[string][]string{}
	for sub, list := range s.Services("test_ffm_model") {
		for _, c := range list {
			services[sub] = append(services[sub], c.GetId())
		}
	}
	if diff := cmp.Diff(map[string][]string{"entry": {"pod-1", "pod-2"}, "ps_0": {"pod-1"}}, services); diff != "" {
		t.Errorf("services: %s", diff)
	}
	if name, to := s.SyncTargets("test_ffm_model", "entry"); name != "test_ffm_model:entry" || fmt.Sprint(to) != "[10.0.0.1:3 10.0.0.2:3]" {
		t.Errorf("targets: %s, %v", name, to)
	}
	s = at(t, end)
	if _, to := s.SyncTargets("test_ffm_model", "entry"); fmt.Sprint(to) != "[10.0.0.1:3]" {
		t.Errorf("targets after a loss: %v", to)
	}
	if name, to := s.SyncTargets("nobody", "ps_0"); name != "nobody:ps_0" || len(to) != 0 {
		t.Errorf("targets of an unknown model: %s, %v", name, to)
	}
}

func TestBZIDInfo(t *testing.T) {
	got, err := at(t, end).BZIDInfo()
	if err != nil {
		t.Fatal(err)
	}
	const path = "testdata/bzid_info.json"
	if os.Getenv("UPDATE") == "1" {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
	empty, err := savedmodels.New().BZIDInfo()
	if err != nil || string(empty) != "{\n  \"model_info\": {},\n  \"container_info\": {},\n  \"layout_info\": {}\n}" {
		t.Errorf("empty: %s, %v", empty, err)
	}
}

// Python prints the same bytes when it reads what we print and prints it its own way.
func TestBZIDInfoIsWhatPythonPrints(t *testing.T) {
	python := oracle.Python(t)
	s := at(t, end)
	odd := "é\"<&>\u2028\\\U0001F600"
	s = savedmodels.Fold(s, events.Recorded{
		Seq: 1000, Subject: events.Join("gip", "layout", eventslayout.ModelAggregate("m")),
		Event: &eventslayout.Event{Body: &eventslayout.Event_SavedModelsDeclared{SavedModelsDeclared: &eventslayout.SavedModelsDeclared{
			SavedModels: []*eventslayout.SavedModel{{SubGraph: "Zebra", Config: &eventslayout.DeployConfig{ModelBasePath: "/\x7f" + odd}}},
		}}},
	})
	s = savedmodels.Fold(s, events.Recorded{
		Seq: 1001, Subject: events.Join("gip", "layout", eventslayout.LayoutAggregate(odd)),
		Event: &eventslayout.Event{Body: &eventslayout.Event_EntriesAdded{EntriesAdded: &eventslayout.EntriesAdded{Entries: []string{"m:" + odd}}}},
	})
	got, err := s.BZIDInfo()
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(got) || !strings.Contains(string(got), `\ud83d\ude00`) {
		t.Fatalf("no ASCII JSON: %s", got)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import json, sys
info = json.load(sys.stdin)
for name, m in info["model_info"].items():
    assert list(m) == sorted(m), m
    for v in m.values():
        if isinstance(v, dict):
            json.loads(v["deploy_config"])
for c in info["container_info"].values():
    for one in c.values():
        d = json.loads(one["service_info"])["debug_info"]
        assert d is None or json.loads(d)["layout_path"]
sys.stdout.write(json.dumps(info, indent=2))`)
	cmd.Stdin = bytes.NewReader(got)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	want, err := cmd.Output()
	if err != nil {
		t.Fatalf("python: %v: %s", err, &stderr)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
}
