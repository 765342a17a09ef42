package lineage_test

import (
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/projections/internal/foldtest"
	"github.com/monolith-go/monolith/projections/lineage"
)

// Where bytes are to be had is a fold: of hosts that offer them and have not taken that back.
func TestReplaySources(t *testing.T) {
	foldtest.Replay(t, "testdata/sources.jsonl", "testdata/sources.want.json",
		follow.View[lineage.State]{Name: lineage.Name, Version: lineage.Version, New: lineage.New, Fold: lineage.Fold})
}

// Hosts with a new name each time they start must not fill memory.
func TestSourcesAreBounded(t *testing.T) {
	s := lineage.New()
	for i := range lineage.MaxSources + 10 {
		host := fmt.Sprint("host-", i)
		s = lineage.Fold(s, events.Recorded{Seq: uint64(i + 1), Subject: transfer.Subject("b", host),
			Event: &transfer.Event{Body: &transfer.Event_SourceOffered{SourceOffered: &transfer.SourceOffered{Host: host, Address: "h:1"}}}})
	}
	if len(s.Sources) != lineage.MaxSources || s.Sources["host-9"].Seq != 0 || s.Sources["host-10"].Seq != 11 {
		t.Errorf("%d sources, of host-9 %+v", len(s.Sources), s.Sources["host-9"])
	}
}

// What was exported is known by folder, version and sub-model, however the folder is spelled; an
// export made anew counts as the newest fact says.
func TestExported(t *testing.T) {
	f := &fold{s: lineage.New()}
	exported := func(dir, hash string) {
		f.add(&training.Event{Body: &training.Event_ModelExported{ModelExported: &training.ModelExported{Version: 3, ModelDir: dir, SubModels: []string{"entry"},
			Parts: map[string]*training.ExportedPart{"entry": {Export: hash, Bytes: 5}}}}})
	}
	exported("/a/exported_models/", "1")
	exported("/a/exported_models", "2")
	exported("/b/exported_models", "3")
	f.add(&training.Event{Body: &training.Event_ModelExported{ModelExported: &training.ModelExported{Version: 4, ModelDir: "/a/exported_models", SubModels: []string{"entry"}}}})
	if in := f.s.ExportsIn("/a/exported_models/"); len(in) != 1 || in[3].GetParts()["entry"].GetExport() != "2" {
		t.Errorf("in the folder are %v", in)
	}
	for _, c := range []struct {
		dir, sub string
		version  int64
		want     string
	}{
		{"/a/exported_models", "entry", 3, "[2]"}, {"/b/exported_models/", "entry", 3, "[3]"},
		{"/c", "entry", 3, "[]"}, {"/a/exported_models", "ps_0", 3, "[]"}, {"/a/exported_models", "entry", 2, "[]"},
	} {
		hashes := []string{}
		for _, p := range f.s.Exported(c.dir, c.sub, c.version) {
			hashes = append(hashes, p.GetExport())
		}
		if got := fmt.Sprint(hashes); got != c.want {
			t.Errorf("%v: %s", c, got)
		}
	}
}
